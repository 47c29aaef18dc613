"""Rules about the load and the clocks of the GPU."""

from collections.abc import Sequence

from fastprof.findings.draft import Abstain, Draft, capped, need_sample, percent, span_text
from fastprof.findings.fixes import fixes
from fastprof.findings.measurements import Facts
from fastprof.findings.thresholds import LIMITS, MIN_SAMPLES
from fastprof.names import readable
from fastprof.report.figures import plural
from fastprof.report.health import POWER_CAP
from fastprof.report.model_gpu import GpuDeviceRow, GpuHealthRow

_SAYS = {
    "note": "below the target of 80 %",
    "warning": "likely a CPU bottleneck (data loading or preprocessing)",
    "critical": "serious bottleneck, the GPU is waiting for work",
}


def gpu_utilization(facts: Facts) -> Draft | None:
    """Busy share of the GPU; the most that can be saved is its idle time, without fastprof's."""
    need_sample(facts)
    timeline = facts.timeline
    if timeline is None:
        raise Abstain("the GPU was not recorded")
    busy, limit = timeline.busy_ms, LIMITS["gpu-utilization"]

    def grade(idle: float) -> str | None:
        return capped(limit.grade(busy / (busy + idle) if busy + idle else 0.0), facts)

    ms = min(timeline.idle_ms, sum(facts.idle.values()))
    severity = grade(ms)
    if severity is None:
        return None
    value = facts.share(busy)
    parts = ", ".join(
        f"{readable(name, 60)} {span_text(ms, facts)}" for name, ms in timeline.idle[:3] if ms
    )
    return Draft(
        value=100 * value, unit="%",
        title=f"The GPU is busy {percent(value)} of the time: {_SAYS[severity]}",
        severity=severity, threshold=limit.text(severity), source=limit.origin,
        evidence=(f"It is idle while the training thread is in: {parts}.",) if parts else (),
        fix=fixes("gpu-utilization", facts.framework),
        ms=ms, grade=grade, everywhere=True,
    )  # fmt: skip


def gpu_throttled(facts: Facts) -> Draft | None:
    """Clocks of the most throttled device; the cost of throttling is unknown."""
    need_sample(facts)
    if facts.gpu is None:
        raise Abstain("the GPU was not recorded")
    known = [(d, d.health) for d in facts.gpu.devices if d.health and d.health.throttle_samples]
    if not known:
        raise Abstain("the driver did not tell whether clocks are throttled")
    most = max(row.throttle_samples for _, row in known)
    known = [(d, row) for d, row in known if row.throttle_samples >= MIN_SAMPLES]
    if not known:
        raise Abstain(f"{plural(most, 'sample')} of the clocks taken, {MIN_SAMPLES} are needed")
    device, row = max(known, key=lambda pair: (pair[1].slowed or 0.0, pair[1].throttled or 0.0))
    value, limit = row.slowed or 0.0, LIMITS["gpu-throttled"]
    severity = capped(limit.grade(value), facts)
    title = f"GPU {device.index} is throttled by heat or hardware in {percent(value)} of the time"
    if severity is None:
        device, row, value = _most_capped(known)
        limit = LIMITS["gpu-power-cap"]
        severity = limit.grade(value)
        title = f"GPU {device.index} runs at its power limit in {percent(value)} of the time"
    if severity is None:
        return None
    return Draft(
        value=100 * value, unit="%", title=title,
        severity=severity, threshold=limit.text(severity), source=limit.origin,
        evidence=(_health_text(device, row),), fix=fixes("gpu-throttled", facts.framework),
    )  # fmt: skip


def _most_capped(
    known: Sequence[tuple[GpuDeviceRow, GpuHealthRow]],
) -> tuple[GpuDeviceRow, GpuHealthRow, float]:
    def share(row: GpuHealthRow) -> float:
        return next((r.share for r in row.reasons if r.reason == POWER_CAP), 0.0)

    device, row = max(known, key=lambda pair: share(pair[1]))
    return device, row, share(row)


def _health_text(device: GpuDeviceRow, row: GpuHealthRow) -> str:
    by = ", ".join(f"{r.reason} {percent(r.share)}" for r in row.reasons)
    parts = [f"{readable(device.name, 60)}, {plural(row.throttle_samples, 'sample')}: {by}"]
    if row.temperature_c is not None:
        parts.append(f"{row.temperature_c:.0f} C on average, {row.temperature_max_c} C at most")
    if row.sm_clock_mhz is not None:
        parts.append(
            f"SM clock {row.sm_clock_mhz:.0f} MHz on average, {row.sm_clock_min_mhz} to "
            f"{row.sm_clock_max_mhz} MHz"
        )
    if row.power_w is not None:
        parts.append(f"{row.power_w:.0f} W on average")
    return f"{'; '.join(parts)}."
