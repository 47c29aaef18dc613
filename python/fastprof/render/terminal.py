"""A report on a terminal: one screen, or in full with tables that ``rich`` draws if all fit."""

import io
import sys
from collections.abc import Sequence
from typing import TextIO

from fastprof.names import encodable, text_width
from fastprof.render import screen, text
from fastprof.render.plain import plain
from fastprof.report.model import Report
from fastprof.tables.blocks import Block
from fastprof.tables.cells import Table
from fastprof.tables.layout import as_readable, width_of, without_spare


def show(
    report: Report,
    stream: TextIO | None = None,
    *,
    full: bool = False,
    last: Sequence[str] = (),
) -> None:
    """Write the report to ``stream`` (None: ``sys.stdout``), as wide as the stream.

    One screen has the lines ``last`` above its verdict.
    """
    stream = sys.stdout if stream is None else stream
    width = width_of(stream)
    if full:
        made = io.StringIO()
        text.write(report, made, width=width)
        said = made.getvalue()
    else:
        said = "".join(f"{line}\n" for line in screen.closed_lines(report, width, last))
    shown = encodable(said, stream)
    # rich cannot draw what the stream cannot encode.
    is_terminal = hasattr(stream, "isatty") and stream.isatty()
    if not (full and shown == said and is_terminal and _draw(report, stream, width)):
        stream.write(shown)


def _draw(report: Report, stream: TextIO, width: int) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        return False
    blocks = text.blocks(report, width)
    tables = [_for_rich(p, width) for block in blocks for p in block.parts if isinstance(p, Table)]
    if any(_width(table) > width for table in tables):
        # Squeezed columns would cut figures and names; plain lines wrap and keep everything.
        return False
    console = Console(file=stream, markup=False, highlight=False, emoji=False, width=width)

    # Text objects, because a plain string "[red]" would be markup.
    def put(lines: list[str]) -> None:
        for line in lines:
            console.print(Text(line), soft_wrap=True)

    for i, block in enumerate(blocks):
        put([""] if i else [])
        for part in block.parts:
            if not isinstance(part, Table):
                continue
            # Borders around and between cells, and a space on each side of the text.
            table = _for_rich(part, width)
            drawn = RichTable(title=Text(table.title), title_justify="left")
            for n, header in enumerate(table.headers):
                left = n in table.left
                drawn.add_column(Text(header), justify="left" if left else "right", no_wrap=True)
            for row in table.rows:
                drawn.add_row(*(Text(cell) for cell in row))
            console.print(drawn)
        others = tuple(part for part in block.parts if not isinstance(part, Table))
        put(plain([Block(block.title, others)], width))
    return True


def _for_rich(table: Table, width: int) -> Table:
    """Return the table without the spare columns that do not fit when drawn."""
    return without_spare(as_readable(table), width - len(table.headers) - 3)


def _width(table: Table) -> int:
    """Return the width of the drawn table on a terminal."""
    cells = [table.headers, *table.rows]
    widths = [max(text_width(row[i]) for row in cells) for i in range(len(table.headers))]
    # One space on each side of a cell and a line between cells and around them.
    return sum(widths) + 3 * len(widths) + 1
