"""One section of a run: its times and the functions in it."""

from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.report.rows import OWN_COST, UNACCOUNTED
from fastprof.tables.blocks import Block, Text
from fastprof.tables.cells import duration, number, percent, short
from fastprof.tables.report import FUNCTION_ROWS, functions


def section_blocks(report: Report, name: str) -> list[Block]:
    """Return the blocks about a section.

    Raises:
        UnknownSectionError: (a KeyError) no such section; the message lists them.
    """
    if name == UNACCOUNTED and _of_step(report, name):
        text = f"{name}: what the thread of the steps does in no section{_of_step(report, name)}."
        return _blocks(report, name, text)
    row = report.section(name)
    times = f"{short(row.name)}: entered {plural(row.count, 'time')}"
    if row.mean_ms is not None:
        times += (
            f", {number(row.mean_ms)} ms each (p50 {number(row.p50_ms)}, p95 {number(row.p95_ms)}, "
            f"longest {number(row.max_ms)}), {number(row.total_ms)} ms in all"
        )
    times += _of_step(report, row.name)
    if row.errors:
        times += f"; left by an exception {plural(row.errors, 'time')}"
    return _blocks(report, name, f"{times}.")


def _of_step(report: Report, name: str) -> str:
    """Return the row of the step table as the end of a sentence; empty without a row."""
    without = any(row.name == OWN_COST for row in report.shown_steps.rows)
    for step in report.shown_steps.rows:
        if step.name == name:
            cost = ", fastprof's cost taken off" if without else ""
            return f"; {duration(step.mean_ms)} per step, {percent(step.share)} % of it{cost}"
    return ""


def _blocks(report: Report, name: str, times: str) -> list[Block]:
    blocks = [Block("", (Text(times, rest="  "),))]
    rows = report.functions_in(name)
    if rows:
        title = "Functions in it, most self time first ({} of {})"
        blocks.append(Block("", (functions(rows, title, FUNCTION_ROWS, report.mark),)))
    return blocks
