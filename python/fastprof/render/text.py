"""The full report as plain text, for log files and pagers.

:mod:`fastprof.render.screen` is the short form on one screen.
"""

from typing import TextIO

from fastprof.render.plain import plain
from fastprof.report.model import Report
from fastprof.tables.blocks import Block, Code, Items, Text
from fastprof.tables.compilations import compile_lines
from fastprof.tables.findings import findings_block
from fastprof.tables.gpu import gpu_lines
from fastprof.tables.layout import PIPED
from fastprof.tables.report import all_tables, steps_line, summary
from fastprof.tables.user_tree import functions_lines

_USER_ROWS = 25


def write(report: Report, stream: TextIO, *, width: int | None = None) -> None:
    """Write the report.

    Args:
        width: columns of a line; None: tables have all their columns, at any width.
    """
    prose = width or PIPED
    lines = plain(blocks(report, prose), width, prose)
    stream.writelines(f"{line}\n" for line in lines)


def blocks(report: Report, width: int) -> list[Block]:
    """Return the report in reading order."""
    head = [Text(line) for line in summary(report)]
    if report.steps.count:
        head.append(Text(steps_line(report), rest="  "))
    head += [Text(line, rest="  ") for line in (*gpu_lines(report), *compile_lines(report))]
    tree = functions_lines(report, width, _USER_ROWS)
    overhead = Text(f"Overhead: {report.overhead.text}", rest="  ")
    made = [
        Block("", tuple(head)),
        *findings_block(report),
        *(Block("", (table,)) for table in all_tables(report)),
        *([Block("", (Code(tuple(tree)),))] if tree else ()),
        Block("", (overhead,)),
    ]
    if report.notes:
        made.append(Block("Notes:", (Items(report.notes),)))
    return made
