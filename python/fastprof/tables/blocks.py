"""Building blocks of every output format: paragraphs, lists, code, tables, charts.

:mod:`fastprof.render.plain`, :mod:`fastprof.render.markdown` and :mod:`fastprof.render.html` write
them, each in its format.  Texts in blocks are printable.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.tables.cells import Table

#: A chart ends a little above all but its largest values, if these are twice as large.
_ABOVE = 1.2


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; in plain text its lines begin with ``first`` and ``rest`` (None: as wide)."""

    text: str
    first: str = ""
    rest: str | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """Sentences, one below the other; in plain text like :class:`Text`.

    ``leads`` are bold prefixes of the rows, which are then numbered.
    """

    rows: tuple[str, ...]
    first: str = "- "
    rest: str | None = None
    leads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Code:
    """Literal lines."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a chart: its name, colour, and values at its first places."""

    name: str
    colour: int
    values: Sequence[float]
    #: Drawn as a dashed line across the chart.
    level: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over places.

    Attributes:
        title: the text above the chart.
        label: the chart in a sentence; pointing at a place shows its entry of ``readings``.
        kind: ``"line"``, ``"area"`` (stacked lines, each place as wide as its number), ``"bars"``,
            or ``"heat"`` (a line is a row of cells, darker for larger values; NaN is unknown).
        units: of the places and of the values.
        places: ascending numbers.
        lines: the series.
        readings: a sentence for each place.
        top: the largest value shown; larger ones are marked.
        marks: names of some places.
        remark: a hint for reading it; may be empty.
        named: whether to list the names of the lines below.
    """

    title: str
    label: str
    kind: str
    units: tuple[str, str]
    places: Sequence[float]
    lines: tuple[Line, ...]
    readings: Sequence[str]
    top: float
    marks: tuple[tuple[str, float], ...] = ()
    remark: str = ""
    named: bool = True


Part = Text | Items | Code | Table | Chart


@dataclass(frozen=True, slots=True)
class Block:
    """A title, which may be empty, and its content; a blank line separates two blocks."""

    title: str
    parts: tuple[Part, ...] = ()


def chart_top(values: Sequence[float]) -> tuple[float, int]:
    """Return the top of a chart of these values, and how many of them are larger.

    The top is a little above the 99th percentile (with fewer than 300 values above all but three, a
    tenth of them at most), if the largest is twice as large; otherwise the largest.
    """
    ordered = sorted(values)
    allowed = min(len(ordered) // 10, max(3, math.ceil(len(ordered) / 100)))
    usual = ordered[-1 - allowed] if ordered else 0.0
    if not ordered or ordered[-1] <= 2 * usual:
        return (ordered[-1] if ordered else 0.0) or 1.0, 0
    # A few values among zeros: nothing is usual.
    top = _ABOVE * usual or ordered[-1]
    return top, sum(value > top for value in ordered)
