"""Rules about the load and the clocks of the GPU."""

from collections.abc import Sequence

from fastprof.findings.draft import Abstain, Draft, Rule, capped, need_sample, percent, span_text
from fastprof.findings.fixes import HF
from fastprof.findings.measurements import Facts
from fastprof.findings.thresholds import LIMITS, MIN_SAMPLES, OWN, Limit
from fastprof.names import readable
from fastprof.report.figures import plural
from fastprof.report.health import POWER_CAP
from fastprof.report.model_gpu import GpuDeviceRow, GpuHealthRow

# A healthy GPU has none, but a clock change may cause one, so single samples do not count.
_SLOWED = Limit(
    "share of samples with clocks slowed by heat or hardware", "%", None, 0.05, 0.25,
    f"{OWN}: NVML calls each of these a slowdown by protection, none is normal operation",
)  # fmt: skip
# Busy data center GPUs run at their power limit: that is a fact, not a fault.
_POWER = Limit(
    "share of samples with clocks held down by the power limit", "%", 0.50, None, None,
    f"{OWN}: half of the time",
)  # fmt: skip

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
    value, limit = row.slowed or 0.0, _SLOWED
    severity = capped(limit.grade(value), facts)
    title = f"GPU {device.index} is throttled by heat or hardware in {percent(value)} of the time"
    if severity is None:
        device, row, value = _most_capped(known)
        limit = _POWER
        severity = limit.grade(value)
        title = f"GPU {device.index} runs at its power limit in {percent(value)} of the time"
    if severity is None:
        return None
    return Draft(
        value=100 * value, unit="%", title=title,
        severity=severity, threshold=limit.text(severity), source=limit.origin,
        evidence=(_health_text(device, row),),
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


#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "gpu-throttled", "heat or power limits of the GPU", gpu_throttled,
        order=410, limits=(_SLOWED, _POWER),
        fixes={
            "torch": (
                ("Heat: run nvidia-smi -q -d TEMPERATURE,PERFORMANCE during the training; check "
                "fans, air flow, dust and neighbouring devices, or use another machine."),
                ("Power: nvidia-smi -q -d POWER shows the limit; nvidia-smi -pl raises it, if "
                "supply and cooling allow. A power brake comes from the machine's power supply."),
            ),
        },
    ),
    Rule(
        "gpu-utilization", "an idle GPU", gpu_utilization, order=420,
        fixes={
            "torch": (
                ("Look at what the training thread does while the GPU is idle; larger batches, "
                "a faster input pipeline, torch.compile."),
            ),
            "lightning": ("Larger batches, a faster input pipeline, torch.compile(model).",),
            "transformers": (
                (f"{HF}(per_device_train_batch_size=..., dataloader_num_workers=..., "
                "torch_compile=True)."),
            ),
        },
    ),
)  # fmt: skip
