"""A report on a terminal: drawn with ``rich`` where that is installed, else plain text."""

from __future__ import annotations

import sys
from typing import TextIO

from fastprof.exporters import text
from fastprof.exporters.cells import Table
from fastprof.exporters.tables import FUNCTION_ROWS, all_tables
from fastprof.report.model import Report


def show(report: Report, stream: TextIO | None = None, *, functions: int = FUNCTION_ROWS) -> None:
    """Write the report to ``stream`` (None: ``sys.stdout``).

    Args:
        report: what to write.
        stream: where to; plain text unless it is a terminal.
        functions: how many functions to list; -1 lists all.
    """
    stream = sys.stdout if stream is None else stream
    if not (stream.isatty() and _draw(report, stream, functions)):
        text.write(report, stream, functions=functions)


def _draw(report: Report, stream: TextIO, functions: int) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        return False
    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    tables = all_tables(report, functions)
    if any(_width(table) > console.width for table in tables):
        # Squeezed columns would cut figures and names; plain lines wrap and lose nothing.
        return False

    # Text objects, because in a plain string a name such as "[red]" would be markup.
    for line in text.head_lines(report):
        console.print(Text(line))
    for table in tables:
        drawn = RichTable(title=Text(table.title), title_justify="left")
        for i, header in enumerate(table.headers):
            left = i in table.left
            drawn.add_column(
                Text(header), justify="left" if left else "right", no_wrap=not left,
                overflow="fold",
            )  # fmt: skip
        for row in table.rows:
            drawn.add_row(*(Text(cell) for cell in row))
        console.print()
        console.print(drawn)
    for line in text.tail_lines(report):
        console.print(Text(line))
    return True


def _width(table: Table) -> int:
    """Columns that the table needs on a terminal; a path may fold in half of its own."""
    cells = [table.headers, *table.rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.headers))]
    last = len(widths) - 1
    if last in table.left:
        widths[last] = (widths[last] + 1) // 2
    # One space on each side of a cell and a line between cells and around them.
    return sum(widths) + 3 * len(widths) + 1
