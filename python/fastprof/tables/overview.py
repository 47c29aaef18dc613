"""The four main figures, for every output that shows them (row S1-01)."""

from dataclasses import dataclass

from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.tables.cells import number, shortened, size_of, with_percent

_MAX_ADVICE = 100


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as printable ASCII text; ``n/a`` if it is unknown."""

    name: str
    value: str


def overview(report: Report) -> tuple[Figure, ...]:
    """Return GPU utilization, step time, GPU memory and the advice, always these four."""
    return (
        Figure("GPU utilization", _utilization(report)),
        Figure("step time", _step_time(report)),
        Figure("GPU memory", _memory(report)),
        Figure("recommendation", _recommendation(report)),
    )


def known_figures(report: Report) -> tuple[Figure, ...]:
    """Return those of the four that this machine can have: without a GPU, none about it."""
    gpu = report.gpu is not None and report.gpu.status == "on"
    return tuple(f for f in overview(report) if gpu or f.value != "n/a")


def _utilization(report: Report) -> str:
    busy = None if report.gpu is None else report.gpu.utilization
    return with_percent(busy)


def _step_time(report: Report) -> str:
    steps = report.steps
    if steps.mean_ms is None:
        return "n/a"
    cv = with_percent(steps.cv)
    return (
        f"{number(steps.mean_ms)} ms mean, spread (std/mean) {cv} (p50 {number(steps.p50_ms)}, "
        f"p95 {number(steps.p95_ms)}, {plural(steps.measured, 'step')})"
    )


def _memory(report: Report) -> str:
    memory = report.memory
    if memory is None:
        return "n/a"
    share = "" if memory.share is None else f" ({with_percent(memory.share)})"
    return f"{size_of(memory.peak_reserved, memory.total_bytes)}{share}"


def _recommendation(report: Report) -> str:
    findings = report.findings
    if not findings:
        return "none"
    return shortened(findings[0].title, _MAX_ADVICE)
