"""Charts as pictures that need no script; with the script they show values, and zoom."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

from fastprof.render.html.heat import cells, row_names
from fastprof.render.html.markup import Markup, bullets, el, joined, safe_json
from fastprof.report.phase_names import IN_A_STEP
from fastprof.tables.blocks import Chart, Line

#: Height of the picture in its own units; its width is the width of the places.
_HEIGHT = 1000
#: The room above the largest value, as a factor.
_ROOM = 1.04

#: The colour of the remainder.
_REST = 8
#: A colour has one meaning on a page: sections and kinds of time stand below each other.
_COLOURS = {
    **{name: i for i, phase in enumerate(IN_A_STEP) for name in phase},
    "(unaccounted)": _REST, "compute": 6, "gpu_wait": 7, "gc": 4, "lock": 5, "communication": 9,
    "io": 10, "cpu_wait": 11,
    "(fastprof)": 12, "fastprof": 12, "other": _REST,
}  # fmt: skip
#: Colours of other sections, in their order.
_FREE = range(13, 19)


#: The shortest axis: below it a logarithm or a step is no longer a number.
_LEAST = 1e-290


def colours(names: Sequence[str], among: Sequence[str] = ()) -> list[int]:
    """Return a colour for each name; usual names have the same one in all charts.

    Args:
        among: the names of all charts with unusual ones, for which these share the free colours.
    """
    free = iter(_FREE)
    found = dict(_COLOURS)
    for name in (*among, *names):
        if name not in found:
            found[name] = next(free, _REST)
    return [found[name] for name in names]


def figure(chart: Chart) -> Markup:
    """Return a chart with its axes, its legend and its data for the script."""
    low, high = chart.places[0], chart.places[-1]
    if chart.kind != "line":
        half = _width(chart) / 2
        low, high = low - half, high + half
    high = high if high > low else low + 1
    top = max(_ROOM * chart.top, _LEAST)
    values = list(row_names(chart) if chart.kind == "heat" else _ticks(0.0, top))
    grid = "".join(f"M0 {round(_HEIGHT * (1 - at))}H{_short(high - low)}" for _, at in values)
    picture = el(
        "svg",
        *(cells(chart, high - low, _HEIGHT) if chart.kind == "heat"
          else (el("path", d=grid, class_="grid"), *_shapes(chart, low, high, top))),
        viewBox=f"0 0 {_short(high - low)} {_HEIGHT}", preserveAspectRatio="none",
        aria_hidden="true",
    )  # fmt: skip
    plot = el(
        "div",
        el("span", chart.units[1], class_="unit"),
        el("div", *(_tick(text, "bottom", at) for text, at in values), class_="axis-y"),
        el("div", picture, *_marks(chart, low, high), class_="shapes"),
        el("div", *(_tick(text, "left", at) for text, at in _ticks(low, high)), class_="axis-x"),
        el("span", chart.units[0], class_="unit below"),
        class_="plot" + (" marked" if chart.marks else ""), role="img", aria_label=chart.label,
    )  # fmt: skip
    data = {"places": [round(p, 4) for p in chart.places], "readings": chart.readings,
            "low": low, "high": high}  # fmt: skip
    return el(
        "figure",
        el("figcaption", chart.title),
        plot,
        el("p", chart.label, class_="detail"),
        legend([(line.name, line.colour) for line in chart.lines]) if chart.named else None,
        el("p", chart.remark, class_="minor") if chart.remark else None,
        el("script", Markup(safe_json(data)), type="application/json"),
        class_=f"chart {chart.kind}",
    )


def legend(names: Sequence[tuple[str, int]]) -> Markup | None:
    """Return names with their colours."""
    return bullets(
        [joined([swatch(colour), el("span", name, class_="what")]) for name, colour in names],
        class_="legend",
    )


def swatch(colour: int) -> Markup:
    """Return a small square of a colour."""
    return el("span", class_=f"swatch series-{colour}")


def _width(chart: Chart) -> float:
    """Return the width of a place of an area or of bars."""
    return min((b - a for a, b in pairwise(chart.places)), default=1.0)


def _shapes(chart: Chart, low: float, high: float, top: float) -> Iterator[Markup]:
    def y(value: float) -> int:
        return round(_HEIGHT * (1 - min(max(value, 0.0), chart.top) / top))

    if chart.kind == "line":
        for line in chart.lines:
            yield _polyline(chart, line, low, y)
    else:
        yield from _areas(chart, low, y)
    for line in chart.lines:
        if line.level is not None:
            way = f"M0 {y(line.level)}H{_short(high - low)}"
            yield el("path", d=way, class_="level")
    for _, place in chart.marks:
        yield el("path", d=f"M{_short(place - low)} 0V{_HEIGHT}", class_="mark")
    over = _beyond(chart)
    if over:
        way = "".join(f"M{_short(chart.places[i] - low)} {y(chart.top)}h0" for i in over)
        yield el("path", d=Markup(way), class_="over")


def _beyond(chart: Chart) -> list[int]:
    """Return the places with values beyond the chart."""
    columns: list[Sequence[float]] = [line.values for line in chart.lines]
    if chart.kind == "area":
        columns = [[sum(values) for values in zip(*columns, strict=True)]]
    found = ((i, value) for column in columns for i, value in enumerate(column))
    # Sums of rounded parts are slightly off.
    return sorted({i for i, value in found if value > chart.top * 1.0001})


def _polyline(chart: Chart, line: Line, low: float, y: Callable[[float], int]) -> Markup:
    points = [
        f"{_short(place - low)},{y(value)}"
        for place, value in zip(chart.places, line.values, strict=False)
    ]
    # Make a single point visible.
    points += points if len(points) == 1 else []
    return el("polyline", points=Markup(" ".join(points)), class_=f"line line-{line.colour}")


def _areas(chart: Chart, low: float, y: Callable[[float], int]) -> Iterator[Markup]:
    """Yield each area on top of those before it, the uppermost drawn first: this hides seams."""
    width = _width(chart)
    sums = accumulate(
        (line.values for line in chart.lines),
        lambda below, more: [a + b for a, b in zip(below, more, strict=True)],
    )
    for line, values in reversed(list(zip(chart.lines, sums, strict=True))):
        yield el(
            "path", d=Markup(_steps(chart, [y(v) for v in values], low, width)),
            class_=f"fill-{line.colour}",
        )  # fmt: skip


def _steps(chart: Chart, ys: Sequence[int], low: float, width: float) -> str:
    """Return the path along the places' upper edges, down to the axis at gaps."""
    # Bars do not touch.
    wide = 0.9 * width if chart.kind == "bars" else width
    way, x, level = [f"M0 {_HEIGHT}"], low, _HEIGHT
    for place, height in zip(chart.places, ys, strict=True):
        lack = place - wide / 2 - x
        if lack > width / 1000:
            way.append(f"v{_HEIGHT - level}h{_short(lack)}")
            x, level = x + lack, _HEIGHT
        way.append(f"v{height - level}h{_short(wide)}")
        x, level = x + wide, height
    return "".join((*way, f"V{_HEIGHT}z"))


def _ticks(low: float, high: float) -> Iterator[tuple[str, float]]:
    """Yield round numbers and their positions on the axis (0..1), like ``ticks`` in charts.js."""
    rough = (high - low) / 6
    if not _LEAST <= rough < math.inf:
        return  # a saved run may hold any time
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough * 0.999)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    for n in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield f"{n * step:,.{decimals}f}", (n * step - low) / (high - low)


def _tick(text: str, side: str, at: float) -> Markup:
    return el("span", text, class_="tick", style=f"{side}:{_short(100 * at)}%")


def _marks(chart: Chart, low: float, high: float) -> Iterator[Markup]:
    """Labels of marked places, one per line, aligned towards the middle."""
    for row, (text, place) in enumerate(chart.marks):
        at = 100 * (place - low) / (high - low)
        side = f"right:{_short(100 - at)}%" if at > 50 else f"left:{_short(at)}%"
        style = f"{side};top:{1.2 * row - 2.6:.1f}em"
        yield el("span", text, class_="mark-label", style=style, data_place=_short(place))


def _short(value: float) -> str:
    """Return a number with as few digits as a picture needs."""
    return f"{value:.3f}".rstrip("0").rstrip(".")
