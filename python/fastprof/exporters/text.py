"""A report as plain text in ASCII: fits every terminal, log file and pager."""

from __future__ import annotations

from typing import TextIO

from fastprof.exporters.cells import Table
from fastprof.exporters.findings_lines import findings_lines
from fastprof.exporters.tables import (
    FUNCTION_ROWS,
    all_tables,
    steps_line,
    summary,
)
from fastprof.exporters.tables_gpu import gpu_lines
from fastprof.names import ascii_name
from fastprof.report.model import Report


def write(report: Report, stream: TextIO, *, functions: int = FUNCTION_ROWS) -> None:
    """Write the report.

    Args:
        report: what to write.
        stream: where to.
        functions: how many functions to list; -1 lists all.
    """
    for line in head_lines(report):
        stream.write(line + "\n")
    for table in all_tables(report, functions):
        stream.write("\n" + table.title + "\n")
        for line in table_lines(table):
            stream.write(line + "\n")
    for line in tail_lines(report):
        stream.write(line + "\n")


def head_lines(report: Report) -> list[str]:
    """Return what stands above the tables."""
    lines = summary(report)
    if report.steps.count:
        lines.append(steps_line(report.steps))
    lines += gpu_lines(report)
    found = findings_lines(report)
    return [*lines, "", *found] if found else lines


def tail_lines(report: Report) -> list[str]:
    """Return what stands below the tables: overhead and notes."""
    lines = ["", f"Overhead: {ascii_name(report.overhead.text)}"]
    if report.notes:
        lines += ["", "Notes:", *(f"- {ascii_name(note)}" for note in report.notes)]
    return lines


def table_lines(table: Table) -> list[str]:
    """Return a table as lines: the headers, a rule, the rows."""
    cells = [table.headers, *table.rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.headers))]
    out = []
    for row in cells:
        line = "  ".join(
            cell.ljust(width) if i in table.left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        out.append(line.rstrip())
    out.insert(1, "  ".join("-" * width for width in widths))
    return out
