"""Rules about how busy the GPU is."""

from __future__ import annotations

from fastprof.analysis.facts import Facts
from fastprof.analysis.findings.draft import (
    Abstain,
    Draft,
    Rule,
    capped,
    need_sample,
    percent,
    span_text,
)
from fastprof.analysis.fixes import fixes
from fastprof.analysis.thresholds import LIMITS
from fastprof.names import ascii_name

_SAYS = {
    "note": "below the target of 80 %",
    "warning": "likely a CPU bottleneck (data loading or preprocessing)",
    "critical": "serious bottleneck, the GPU is waiting for work",
}


def gpu_utilization(facts: Facts) -> Draft | None:
    """Busy share of the GPU; at most its idle time is saved."""
    need_sample(facts)
    timeline = facts.timeline
    if timeline is None:
        raise Abstain("the GPU was not recorded")
    busy, limit = timeline.busy_ms, LIMITS["gpu-utilization"]

    def grade(idle: float) -> str | None:
        return capped(limit.grade(busy / (busy + idle) if busy + idle else 0.0), facts)

    severity = grade(timeline.idle_ms)
    if severity is None:
        return None
    value = facts.share(busy)
    parts = ", ".join(
        f"{ascii_name(name, 60)} {span_text(ms, facts)}" for name, ms in timeline.idle[:3] if ms
    )
    return Draft(
        value=100 * value, unit="%",
        title=f"The GPU is busy {percent(value)} of the time: {_SAYS[severity]}",
        severity=severity, threshold=limit.text(severity), source=limit.origin,
        evidence=(f"It is idle while the training thread is in: {parts}.",) if parts else (),
        fix=fixes("gpu-utilization", facts.framework),
        ms=timeline.idle_ms, grade=grade, everywhere=True,
    )  # fmt: skip


GPU_UTILIZATION = Rule(
    "gpu-utilization", gpu_utilization,
    "A GPU without a kernel or copy to run is paid for and does nothing. Below 70 % of the time "
    "the host is the limit: it loads data, computes, logs, or launches too slowly. This rule is "
    "last: what others find on the host is taken off its idle time first.",
)  # fmt: skip
