"""The cells of a heat map: a row per line of the chart, a column per place."""

import math
from collections.abc import Iterator
from itertools import groupby

from fastprof.render.html.markup import Markup, el
from fastprof.tables.blocks import Chart

#: Shades of a cell, each a class in the style sheet; the first one is drawn from half its part on.
SHADES = 6
#: The class of a cell without a value.
_NONE = "none"
#: Most row names that fit.
_NAMES = 16


def cells(chart: Chart, width: float, height: int) -> Iterator[Markup]:
    """Yield a path for each shade.

    Args:
        chart: its lines are rows, the first at the top; NaN is unknown.
    """
    column, row = width / len(chart.places), height / max(1, len(chart.lines))
    ways: dict[str, list[str]] = {}
    for y, line in enumerate(chart.lines):
        shades = enumerate(_shade(value, chart.top) for value in line.values)
        for shade, same in groupby(shades, key=lambda item: item[1]):
            first, *rest = (x for x, _ in same)
            if shade:
                wide = (1 + len(rest)) * column
                way = f"M{first * column:.6g} {y * row:.6g}h{wide:.6g}v{row:.6g}h{-wide:.6g}z"
                ways.setdefault(shade, []).append(way)
    for shade, found in sorted(ways.items()):
        yield el("path", d=Markup("".join(found)), class_=f"heat-{shade}")


def _shade(value: float, top: float) -> str:
    if math.isnan(value):
        return _NONE
    shade = min(SHADES, round(SHADES * value / top))
    return str(shade) if shade > 0 else ""


def row_names(chart: Chart) -> Iterator[tuple[str, float]]:
    """Yield names of rows and their positions on the axis, from below (0..1)."""
    count = len(chart.lines)
    every = -(-count // _NAMES)
    for y in range(0, count, every):
        yield chart.lines[y].name, 1 - (y + 0.5) / count
