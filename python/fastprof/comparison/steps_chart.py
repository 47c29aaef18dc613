"""The steps' times of several runs as a chart: a line per run, and its median."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median

from fastprof.names import readable
from fastprof.report.figures import duration, number, plural
from fastprof.tables.blocks import Block, Chart, Line, chart_top

#: Number of line colours on a page.
_COLOURS = 9
#: A line has at most about this many points; with more steps, each is the mean of several.
_POINTS = 480


def steps_chart(labels: Sequence[str], runs: Sequence[Sequence[float]]) -> list[Block]:
    """Return the chart; empty unless two runs have the times of their steps."""
    shown = [(i, readable(labels[i], 60), v) for i, v in enumerate(runs) if len(v) > 1]
    if len(shown) < 2:
        return []
    count = max(len(values) for _, _, values in shown)
    size = -(-count // _POINTS)
    top, above = chart_top([value for _, _, values in shown for value in values])
    lines = tuple(
        Line(
            f"{label}: {plural(len(values), 'step')}, median {duration(median(values))}",
            i % _COLOURS,
            [fmean(values[a : a + size]) for a in range(0, len(values), size)],
            median(values),
        )
        for i, label, values in shown
    )
    starts = [*range(0, count, size), count]
    chart = Chart(
        "", f"Time of each step of {'both runs' if len(shown) == 2 else 'the runs'}.", "line",
        ("step", "ms"), [(a + b - 1) / 2 for a, b in pairwise(starts)], lines,
        list(_readings(starts, [label for _, label, _ in shown], lines)), top,
        remark=_remark(size, top, above),
    )  # fmt: skip
    return [Block("Step times", (chart,))]


def _readings(starts: Sequence[int], labels: Sequence[str], lines: Sequence[Line]) -> Iterator[str]:
    for i, (a, b) in enumerate(pairwise(starts)):
        named = zip(labels, lines, strict=True)
        said = ", ".join(
            f"{label} {duration(line.values[i])}" for label, line in named if i < len(line.values)
        )
        yield f"Step {a}: {said}" if b - a == 1 else f"Steps {a} to {b - 1}: {said}"


def _remark(size: int, top: float, above: int) -> str:
    text = "Measured steps in their order; dashed: the median of a run."
    if size > 1:
        text += f" Each point is the mean of {size} steps."
    if above:
        takes = "step takes" if above == 1 else "steps take"
        text += f" {above} {takes} longer than {number(top)} ms, where the chart ends."
    return text
