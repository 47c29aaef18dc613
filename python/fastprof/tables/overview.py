"""The four main figures, for every output that shows them (row S1-01)."""

from fastprof.findings.examine import examine
from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.tables.cells import number, shortened, with_percent
from fastprof.tables.gpu import has_gpu, memory_text


def overview(report: Report) -> tuple[tuple[str, str], ...]:
    """Return GPU utilization, step time, GPU memory and the advice, always these four.

    Each is a name and printable text, ``n/a`` if it is unknown.
    """
    findings = examine(report).findings
    return (
        ("GPU utilization", with_percent(None if report.gpu is None else report.gpu.utilization)),
        ("step time", _step_time(report)),
        ("GPU memory", "n/a" if report.memory is None else memory_text(report.memory)),
        ("recommendation", shortened(findings[0].title, 100) if findings else "none"),
    )


def known_figures(report: Report) -> tuple[tuple[str, str], ...]:
    """Return those of the four that this machine can have: without a GPU, none about it."""
    gpu = has_gpu(report)
    return tuple((name, text) for name, text in overview(report) if gpu or text != "n/a")


def _step_time(report: Report) -> str:
    steps = report.shown_steps
    if report.stages:
        return ", ".join(f"{number(row.mean_ms)} ms in {row.name}" for row in report.stages)
    if steps.mean_ms is None:
        return "n/a"
    cv = with_percent(steps.cv)
    return (
        f"{number(steps.mean_ms)} ms mean, spread (std/mean) {cv} (p50 {number(steps.p50_ms)}, "
        f"p95 {number(steps.p95_ms)}, {plural(steps.measured, 'step')})"
    )
