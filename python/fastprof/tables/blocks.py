"""Building blocks of every output format: paragraphs, lists, code, tables, charts.

:mod:`fastprof.render.plain`, :mod:`fastprof.render.markdown` and :mod:`fastprof.render.html`
write them, each in its format.  Texts in them are printable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.tables.cells import Table

#: A chart ends a little above what all but a few of its values take, if some take twice as long.
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

    ``leads`` are bold in front of the rows, which are numbered then.
    """

    rows: tuple[str, ...]
    first: str = "- "
    rest: str | None = None
    leads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Code:
    """Lines as they are."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One of the things that a chart shows: its name, colour, and values at its first places."""

    name: str
    colour: int
    values: Sequence[float]
    #: Drawn as a dashed line from one side to the other.
    level: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over places.

    Attributes:
        title: what stands above.
        label: the chart in a sentence; a reader who points at a place sees ``readings`` of it.
        kind: ``"line"``, ``"area"`` (lines are stacked, each place is as wide as its number),
            ``"bars"``, or ``"heat"`` (a line is a row of cells, the darker the larger; NaN is
            not known).
        units: of the places and of the values.
        places: ascending numbers.
        lines: what is drawn.
        readings: a sentence for each place.
        top: where values end; larger ones are marked.
        marks: names of some places.
        remark: what has to be known to read it right; may be empty.
        named: whether the names of the lines are listed below.
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
    """A title, which may be empty, and what stands below it; a blank line parts two blocks."""

    title: str
    parts: tuple[Part, ...] = ()


def chart_top(values: Sequence[float]) -> tuple[float, int]:
    """Return where a chart of these values ends, and how many of them are larger.

    It ends a little above the 99th percentile (of less than 300 values above all but three, a
    tenth of them at most), if the largest is twice as large; otherwise at the largest.
    """
    ordered = sorted(values)
    allowed = min(len(ordered) // 10, max(3, math.ceil(len(ordered) / 100)))
    usual = ordered[-1 - allowed] if ordered else 0.0
    if not ordered or ordered[-1] <= 2 * usual:
        return (ordered[-1] if ordered else 0.0) or 1.0, 0
    # A few values beside nothing at all: there is nothing usual to show.
    top = _ABOVE * usual or ordered[-1]
    return top, sum(value > top for value in ordered)
