"""One section of a run: its times and the functions in it."""

from __future__ import annotations

from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.report.rows import UNACCOUNTED
from fastprof.tables.blocks import Block, Text
from fastprof.tables.cells import number, percent, short
from fastprof.tables.report import FUNCTION_ROWS, functions


def section_blocks(report: Report, name: str) -> list[Block]:
    """Return what is known of a section.

    Raises:
        UnknownSectionError: (a KeyError) no such section; the message lists them.
    """
    if name == UNACCOUNTED:
        for step in report.steps.rows:
            if step.name == UNACCOUNTED:
                return _blocks(
                    report,
                    name,
                    f"{name}: what the thread of the steps does in no section; "
                    f"{number(step.mean_ms)} ms per step, {percent(step.share)} % of it.",
                )
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
    return _blocks(report, name, f"{times}.")


def _blocks(report: Report, name: str, times: str) -> list[Block]:
    blocks = [Block("", (Text(times, rest="  "),))]
    rows = report.functions_in(name)
    if rows:
        title = "Functions in it, most self time first ({} of {})"
        blocks.append(Block("", (functions(rows, title, FUNCTION_ROWS),)))
    return blocks
