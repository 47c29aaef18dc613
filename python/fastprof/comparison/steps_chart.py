"""The steps' times of several runs as an SVG picture: a line per run, and its median."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from statistics import fmean, median

from fastprof.names import ascii_name
from fastprof.report.figures import duration, number, plural

#: Columns that the styles of the page have for lines.
_COLOURS = 9
#: Of the picture, and the room for the numbers at its axes.
_WIDTH, _HEIGHT = 960.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 60.0, 12.0, 10.0, 34.0
#: A line has at most about so many points; each is then the mean of several steps.
_POINTS = 480
#: The chart ends a little above what so many of the steps take, if some take twice as long.
_MOST, _ABOVE = 0.99, 1.2
_TICKS = 4


def steps_chart(labels: Sequence[str], runs: Sequence[Sequence[float]]) -> str:
    """Return the figure; empty unless two runs have the times of their steps.

    Args:
        labels: what the runs are called.
        runs: ms of each measured step, by run.
    """
    shown = [(i, labels[i], values) for i, values in enumerate(runs) if len(values) > 1]
    if len(shown) < 2:
        return ""
    count = max(len(values) for _, _, values in shown)
    size = -(-count // _POINTS)
    top, cut = _top([values for _, _, values in shown])
    parts = [*_axes(top, count)]
    for i, label, values in shown:
        parts += _line(i, label, values, size, top, count)
    drawn = "\n".join(parts)
    what = "Time of each step of both runs" if len(shown) == 2 else "Time of each step of the runs"
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="{what}" '
        f'style="width:100%;height:auto;font-size:12px">\n{drawn}\n</svg>\n'
        f'<ul class="legend">{"".join(_legend(*run) for run in shown)}</ul>\n'
        f'<p class="minor">{escape(_remark(size, top, cut))}</p></figure>\n'
    )


def _top(runs: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the largest time shown, and how many steps take longer."""
    ordered = sorted(value for values in runs for value in values)
    usual = _ABOVE * ordered[int(_MOST * (len(ordered) - 1))]
    top = usual if ordered[-1] > 2 * usual / _ABOVE else ordered[-1]
    top = top or 1.0
    return top, sum(value > top for value in ordered)


def _remark(size: int, top: float, cut: int) -> str:
    text = "Measured steps in their order; dashed: the median of a run."
    if size > 1:
        text += f" Each point is the mean of {size} steps."
    if cut:
        takes = "step takes" if cut == 1 else "steps take"
        text += f" {cut} {takes} longer than {duration(top)}, where the chart ends."
    return text


def _x(step: float, count: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / max(1, count - 1)


def _y(ms: float, top: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - min(ms, top) / top)


def _axes(top: float, count: int) -> Iterator[str]:
    for i in range(_TICKS + 1):
        ms = top * i / _TICKS
        y = _y(ms, top)
        yield (
            f'<line x1="{_LEFT:.0f}" x2="{_WIDTH - _RIGHT:.0f}" y1="{y:.1f}" y2="{y:.1f}" '
            'stroke="var(--line)"/>'
        )
        yield _label(_LEFT - 6, y + 4, "end", number(ms))
    bottom = _HEIGHT - _BOTTOM + 16
    steps = sorted({round(i * (count - 1) / _TICKS) for i in range(_TICKS + 1)})
    for step in steps:
        anchor = "end" if step == steps[-1] else "middle"
        yield _label(_x(step, count), bottom, anchor, str(step))
    yield _label(_x(count / 2, count), _HEIGHT - 2, "middle", "step")
    yield _label(4, _TOP + 12, "start", "ms")


def _label(x: float, y: float, anchor: str, text: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="var(--minor)">'
        f"{escape(text)}</text>"
    )


def _line(
    i: int, label: str, values: Sequence[float], size: int, top: float, count: int
) -> Iterator[str]:
    starts = [*range(0, len(values), size), len(values)]
    points = " ".join(
        f"{_x((a + b - 1) / 2, count):.1f},{_y(fmean(values[a:b]), top):.1f}"
        for a, b in pairwise(starts)
    )
    title = f"<title>{escape(_described(label, values))}</title>"
    yield (
        f'<polyline points="{points}" fill="none" stroke="{_colour(i)}" stroke-width="1.5" '
        f'stroke-linejoin="round">{title}</polyline>'
    )
    y = _y(median(values), top)
    yield (
        f'<line x1="{_LEFT:.0f}" x2="{_x(len(values) - 1, count):.1f}" y1="{y:.1f}" '
        f'y2="{y:.1f}" stroke="{_colour(i)}" stroke-width="2" stroke-dasharray="6 5">'
        f"{title}</line>"
    )


def _legend(i: int, label: str, values: Sequence[float]) -> str:
    swatch = f'<span style="color:{_colour(i)}" aria-hidden="true">&#9632;</span>'
    return f'<li>{swatch} <span class="what">{escape(_described(label, values))}</span></li>'


def _described(label: str, values: Sequence[float]) -> str:
    middle = duration(median(values))
    return f"{ascii_name(label, 60)}: {plural(len(values), 'step')}, median {middle}"


def _colour(i: int) -> str:
    return f"var(--series-{i % _COLOURS})"
