"""A report in full as plain text in ASCII: for log files, pagers and whoever wants it all.

What a run says on one screen is in :mod:`fastprof.render.screen`.
"""

from __future__ import annotations

from typing import TextIO

from fastprof.names import ascii_name
from fastprof.report.model import Report
from fastprof.report.user_tree import user_tree
from fastprof.tables.findings import findings_lines
from fastprof.tables.gpu import gpu_lines
from fastprof.tables.layout import PIPED, wrapped
from fastprof.tables.layout import table_lines as table_lines
from fastprof.tables.report import (
    FUNCTION_ROWS,
    all_tables,
    steps_line,
    summary,
)
from fastprof.tables.user_tree import per_steps, user_lines

_USER_ROWS = 25


def write(
    report: Report,
    stream: TextIO,
    *,
    functions: int = FUNCTION_ROWS,
    width: int | None = None,
) -> None:
    """Write the report.

    Args:
        report: what to write.
        stream: where to.
        functions: how many functions to list; -1 lists all.
        width: columns of a line; None: tables have all their columns, whatever that takes.
    """
    prose = width or PIPED
    lines = head_lines(report, prose)
    for table in all_tables(report, functions):
        lines += ["", *wrapped(table.title, prose), *table_lines(table, width)]
    lines += tail_lines(report, prose)
    stream.writelines(f"{line}\n" for line in lines)


def head_lines(report: Report, width: int = PIPED) -> list[str]:
    """Return what stands above the tables."""
    lines = [part for line in summary(report) for part in wrapped(line, width)]
    if report.steps.count:
        lines += wrapped(steps_line(report.steps), width, rest="  ")
    lines += gpu_lines(report, width)
    found = findings_lines(report, width)
    return [*lines, "", *found] if found else lines


def tail_lines(report: Report, width: int = PIPED) -> list[str]:
    """Return what stands below the tables: the program's functions, overhead and notes."""
    tree = user_lines(user_tree(report, _USER_ROWS), width, per_steps(report), report.phase)
    lines = ["", *tree] if tree else []
    lines += ["", *wrapped(f"Overhead: {ascii_name(report.overhead.text)}", width, rest="  ")]
    if report.notes:
        lines += ["", "Notes:"]
        for note in report.notes:
            lines += wrapped(ascii_name(note), width, "- ")
    return lines
