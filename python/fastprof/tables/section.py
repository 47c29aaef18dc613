"""One section of a run: its times and the functions in it."""

from __future__ import annotations

from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.tables.cells import number, percent, short
from fastprof.tables.layout import table_lines, wrapped
from fastprof.tables.report import FUNCTION_ROWS, functions


def section_lines(report: Report, name: str, width: int) -> list[str]:
    """Return what is known of a section as lines of at most ``width`` columns.

    Raises:
        UnknownSectionError: (a KeyError) no such section; the message lists them.
    """
    row = report.section(name)
    times = f"{short(row.name)}: entered {plural(row.count, 'time')}"
    if row.mean_ms is not None:
        times += (
            f", {number(row.mean_ms)} ms each (p50 {number(row.p50_ms)}, p95 {number(row.p95_ms)}, "
            f"longest {number(row.max_ms)}), {number(row.total_ms)} ms in all"
        )
    for step in report.steps.rows:
        if step.name == row.name:
            times += f"; {number(step.mean_ms)} ms per step, {percent(step.share)} % of it"
    if row.errors:
        times += f"; left by an exception {plural(row.errors, 'time')}"
    lines = wrapped(f"{times}.", width, rest="  ")
    rows = report.functions_in(name)
    if rows:
        title = "Functions in it, most self time first ({} of {})"
        table = functions(rows, title, FUNCTION_ROWS)
        lines += ["", *wrapped(table.title, width), *table_lines(table, width)]
    return lines
