"""The charts of a report: each step, the distribution of step times, and the GPU's memory."""

import math
from collections.abc import Iterator, Sequence

from fastprof.names import printable_name
from fastprof.render.html.charts import colours
from fastprof.render.html.tables import name as shown
from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.report.model_gpu import MemoryReport
from fastprof.report.rows import UNACCOUNTED
from fastprof.report.stats import exact_quantiles
from fastprof.tables.blocks import Chart, Line, chart_top
from fastprof.tables.cells import number

#: Number of sections that a chart shows separately; the others are combined.
CHART_SECTIONS = 9
_BARS = 50
_MIB = 1 << 20


def single_steps(report: Report) -> tuple[float, ...]:
    """Return the ms of the steps that charts show, the last ones of the run."""
    return report.shown_steps.series.wall_ms or tuple(
        ns / 1e6 for ns in report.shown_snapshot_steps.recent_ns
    )


def step_charts(report: Report) -> tuple[Chart, Chart, str]:
    """Return the charts of each step by section and of step times, and a note on what they omit.

    There must be a step that they can show.
    """
    steps, series = report.shown_steps, report.shown_steps.series
    wall = single_steps(report)
    # Without a separate series the kept steps are the last ones.
    first = series.first if series.wall_ms else max(steps.skipped, steps.count - len(wall))
    places = series.numbers if series.wall_ms else range(first, first + len(wall))
    top, above = chart_top(wall)
    p50, p95 = exact_quantiles(wall, (0.50, 0.95))
    label = (
        f"{plural(len(wall), 'step')} from {first:,} on: median {number(p50)} ms, "
        f"p95 {number(p95)} ms"
    )
    columns = _columns(report, wall)
    names = [name for name, _ in columns]
    among = [row.name for row in report.shown_steps.rows]
    named = dict(zip(names, colours(names, among), strict=True))
    lines = tuple(Line(shown(name), named[name], column) for name, column in columns)
    readings = list(_readings(report, places, wall, columns))
    timeline = Chart(
        "Step by step", f"{label}.", "area", ("step", "ms"), places,
        lines or (Line("step", 0, wall),), readings, top, named=bool(lines),
    )  # fmt: skip
    cut = ""
    if above:
        are = "is" if above == 1 else "are"
        cut = (
            f"{plural(above, 'step')} above {number(top)} ms {are} clipped in these charts (marked "
            f"by a dot in the first); the longest took {number(max(wall))} ms."
        )
    histogram = _histogram([ms for ms in wall if ms <= top], label, (("p50", p50), ("p95", p95)))
    return timeline, histogram, cut


def _columns(report: Report, wall: Sequence[float]) -> list[tuple[str, Sequence[float]]]:
    """Return each section's ms in each step, and the rest; empty without sections."""
    names = report.shown_steps.series.names
    largest = sorted(names, key=lambda name: -sum(names[name]))
    columns: list[tuple[str, Sequence[float]]] = [
        (name, names[name]) for name in names if name in largest[:CHART_SECTIONS]
    ]
    rest = [names[name] for name in largest[CHART_SECTIONS:]]
    if rest:
        other = [sum(values) for values in zip(*rest, strict=True)]
        columns.append((f"({plural(len(rest), 'other section')})", tuple(other)))
    if columns:
        covered = [sum(values) for values in zip(*(column for _, column in columns), strict=True)]
        left = (max(0.0, whole - part) for whole, part in zip(wall, covered, strict=True))
        columns.append((UNACCOUNTED, tuple(left)))
    return columns


def _readings(
    report: Report,
    places: Sequence[int],
    wall: Sequence[float],
    columns: Sequence[tuple[str, Sequence[float]]],
) -> Iterator[str]:
    series = report.shown_steps.series
    named = [(printable_name(name, 60), column) for name, column in columns]
    extra = [
        (text, column, unit)
        for text, column, unit in (
            ("garbage collection", series.gc_ms, " ms"),
            ("CPU time", series.cpu_ms, " ms"),
            ("waiting for a CPU", series.cpu_wait_ms, " ms"),
            ("involuntary context switches", series.switches, ""),
            ("major page faults", series.faults, ""),
        )
        if any(column)
    ]
    for i, place in enumerate(places):
        inside = ", ".join(f"{n} {number(column[i])}" for n, column in named if column[i] > 0)
        more = "".join(
            f"; {text} {number(column[i]) if unit else column[i]}{unit}"
            for text, column, unit in extra
            if column[i] > 0
        )
        yield f"Step {place:,}, {number(wall[i])} ms{': ' if inside else ''}{inside}{more}"


def _histogram(
    shown: Sequence[float], label: str, marks: Sequence[tuple[str, float | None]]
) -> Chart:
    low, high = min(shown), max(shown)
    width = (high - low) / min(_BARS, max(1, math.isqrt(4 * len(shown))))
    if not width:  # a single bar needs room on its sides
        width = max(high, 1.0) / 10
        low = max(0.0, low - 1.5 * width)
        high = low + 3 * width
    counts = [0] * round((high - low) / width)
    for ms in shown:
        counts[min(len(counts) - 1, int((ms - low) / width))] += 1
    edges = [low + i * width for i in range(len(counts) + 1)]
    readings = [
        f"{number(a)} to {number(b)} ms: {plural(n, 'step')}"
        for a, b, n in zip(edges, edges[1:], counts, strict=False)
    ]
    return Chart(
        "How long steps took", f"{label}.", "bars", ("ms per step", "steps"),
        [edge + width / 2 for edge in edges[:-1]], (Line("steps", 0, counts),), readings,
        max(counts), named=False,
        marks=tuple((f"{n} {number(ms)}", ms) for n, ms in marks
                    if ms is not None and edges[0] <= ms <= edges[-1]),
    )  # fmt: skip


def memory_chart(memory: MemoryReport) -> Chart:
    """Return the chart of the GPU's memory at the end of steps."""
    columns = [
        (name, [getattr(s, field) / _MIB for s in memory.samples])
        for name, field in (
            ("allocated", "allocated"),
            ("reserved", "reserved"),
            ("peak reserved", "peak_reserved"),
        )
    ]
    places = [sample.step for sample in memory.samples]
    readings = [
        f"After {plural(step, 'step')}: "
        + ", ".join(f"{name} {number(column[i])} MiB" for name, column in columns)
        for i, step in enumerate(places)
    ]
    return Chart(
        "GPU memory, step by step",
        f"MiB of GPU memory at the end of {plural(len(places), 'step')}.",
        "line", ("steps done", "MiB"), places,
        tuple(Line(name, i, column) for i, (name, column) in enumerate(columns)), readings,
        max(max(column) for _, column in columns) or 1.0,
    )  # fmt: skip
