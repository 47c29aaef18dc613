"""The time of the devices in a step."""

from dataclasses import dataclass

from fastprof.report.model_gpu import GpuReport


@dataclass(frozen=True, slots=True)
class Timeline:
    """The GPU in ms per span, all devices together, and the reasons for waiting."""

    busy_ms: float
    kernel_ms: float
    idle_ms: float
    idle_data_ms: float
    communication_ms: float
    overlap_ms: float
    copy_ms: float
    copy_alone_ms: float
    idle: tuple[tuple[str, float], ...]


def timeline_of(gpu: GpuReport, span_ms: float) -> Timeline | None:
    """Return the devices' time per span of ``span_ms``, None if they were not observed."""
    spans = [d.steps or d.whole for d in gpu.devices]
    wall = sum(s.wall_ns for s in spans)
    if not wall or not span_ms:
        return None
    factor = span_ms / wall
    idle: dict[str, float] = {}
    for s in spans:
        for row in s.idle:
            idle[row.section] = idle.get(row.section, 0.0) + row.idle_ns * factor
    return Timeline(
        sum(s.busy_ns for s in spans) * factor,
        sum(s.kernel_ns for s in spans) * factor,
        sum(s.idle_ns for s in spans) * factor,
        sum(s.idle_data_ns for s in spans) * factor,
        sum(s.communication_ns for s in spans) * factor,
        sum(s.overlap_ns for s in spans) * factor,
        sum(s.copy_ns for s in spans) * factor,
        sum(s.copy_alone_ns for s in spans) * factor,
        tuple(sorted(idle.items(), key=lambda item: -item[1])),
    )
