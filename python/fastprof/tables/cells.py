"""Cells of tables: finished text."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fastprof.names import elided, head, readable, text_width
from fastprof.report.figures import duration as duration
from fastprof.report.figures import number as number
from fastprof.report.figures import percent as percent
from fastprof.report.figures import percent_at_most as percent_at_most
from fastprof.report.figures import size as size
from fastprof.report.figures import size_of as size_of
from fastprof.report.figures import torch_size as torch_size
from fastprof.report.figures import with_percent as with_percent

_Row = TypeVar("_Row")

#: Longest name in a table; longer ones would push a row's figures off the screen.
NAME_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text.  Columns in ``left`` are aligned left, the rest right.

    Text in a left column wraps at words, except in ``whole``: its cells lose their middle instead,
    and except in ``ends``, where they lose their ends.
    ``spare`` are headers of columns to drop in a narrow terminal, in this order.
    ``last`` are those to drop only if shorter names and wrapped words do not save enough.
    ``total``: the last row sums up the others.  ``full``: the full names of rows whose first cell
    has a short one.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int] = frozenset({0})
    spare: tuple[str, ...] = ()
    total: bool = False
    whole: frozenset[int] = frozenset()
    last: tuple[str, ...] = ()
    ends: frozenset[int] = frozenset()
    full: tuple[str, ...] = ()


def table_of(
    title: str,
    columns: Sequence[tuple[str, Callable[[_Row], str]]],
    rows: Iterable[_Row],
    left: frozenset[int] = frozenset({0}),
    spare: tuple[str, ...] = (),
    last: tuple[str, ...] = (),
) -> Table:
    """Return the table for columns, each a header and a function from a row to its cell."""
    return Table(
        title,
        tuple(header for header, _ in columns),
        tuple(tuple(cell(row) for _, cell in columns) for row in rows),
        left,
        spare,
        last=last,
    )


def short(name: str) -> str:
    """Return ``name`` printable, at most as wide as a column."""
    return elided(readable(name, 1000), NAME_WIDTH)


def shortened(text: str, limit: int) -> str:
    """Return a sentence, printable and cut between two words if it is too long."""
    text = readable(text, 10 * limit)
    if text_width(text) <= limit:
        return text
    return head(text, limit - 3).rsplit(" ", 1)[0] + "..."
