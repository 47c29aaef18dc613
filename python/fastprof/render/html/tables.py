"""The tables of a page: those of the text report, with full names or details that have them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fastprof.names import printable_name
from fastprof.render.html.limits import LIMITS
from fastprof.render.html.run_phases import phase_name
from fastprof.report.model import Report
from fastprof.report.outlier_rows import OutlierFunction, OutlierSection
from fastprof.report.outliers import Outlier
from fastprof.tables.cells import Table, number, table_of
from fastprof.tables.gpu import gpu_tables, kernels
from fastprof.tables.operators import operator_table, operator_tables
from fastprof.tables.report import (
    sections_table,
    steps_table,
    threads_table,
    worker_function_tables,
)

_MAX_NAME = 1000


def name(text: str) -> str:
    """Return any name fit for display; an empty one has quotes."""
    return printable_name(text, _MAX_NAME) or '""'


def limited(table: Table, names: Sequence[str] = ()) -> Table:
    """Return a table as shown on a page: up to the limit of rows, ``names`` in its first column."""
    rows, total = (table.rows[:-1], table.rows[-1:]) if table.total else (table.rows, ())
    shown = [list(row) for row in rows[: LIMITS.rows]]
    cut = f" (the first {len(shown)} of {len(rows)})" if len(shown) < len(rows) else ""
    for row, text in zip(shown, names, strict=False):
        row[0] = name(text)
    return replace(table, title=table.title + cut, rows=(*map(tuple, shown), *total))


def step_table(report: Report) -> Table:
    """Return each section's share of a step, with its target."""
    return limited(steps_table(report), [row.name for row in report.shown_steps.rows])


def section_table(report: Report) -> Table:
    """Return all sections with the statistics of single entries."""
    table = sections_table(report)
    of = f" ({phase_name(report.phase)})" if report.phases else ""
    table = replace(table, title=table.title + of)
    return limited(table, [row.name for row in report.sections])


def outlier_tables(step: Outlier) -> list[Table]:
    """Return the differences of one of the slowest steps from usual ones."""
    sections: list[tuple[str, Callable[[OutlierSection], str]]] = [
        ("section", lambda r: name(r.name)),
        ("ms", lambda r: number(r.ms)),
        ("usually ms", lambda r: number(r.typical_ms)),
        ("more ms", lambda r: number(r.excess_ms)),
    ]
    functions: list[tuple[str, Callable[[OutlierFunction], str]]] = [
        ("function", lambda r: name(r.qualname or r.name)),
        ("in section", lambda r: name(r.section) if r.section else ""),
        ("self ms", lambda r: number(r.ms)),
        ("usually ms", lambda r: number(r.typical_ms)),
        ("more ms", lambda r: number(r.excess_ms)),
        ("calls", lambda r: str(r.calls)),
        ("usually calls", lambda r: number(r.typical_calls, 1)),
        ("called by", lambda r: name(r.caller) if r.caller else ""),
    ]
    made = [table_of("Sections", sections, step.sections)]
    if step.functions:
        title = (
            f"Functions, over {step.window_steps} steps" if step.window_steps > 1 else "Functions"
        )
        made.append(table_of(title, functions, step.functions, frozenset({0, 1, 7})))
    return [limited(table) for table in made]


def kernel_tables(report: Report) -> list[Table]:
    """Return all kernels, up to the limit."""
    if report.gpu is None or not report.kernels:
        return []
    table = kernels(report.kernels, report.gpu, LIMITS.rows)
    return [limited(table)]


def gpu_tables_(report: Report) -> list[Table]:
    """Return devices, totals, copies, waits, memory; kernels have a separate chapter."""
    return [table for table in gpu_tables(report) if table.headers[:1] != ("kernel",)]


def operator_tables_(report: Report) -> list[Table]:
    """Return operators up to the limit, and their memory."""
    operators = report.operators
    made = operator_tables(report)
    if operators is None or not made:
        return []
    sort = "self_device" if operators.device else "self_cpu"
    rows = [row.name for row in operators.sorted_by(sort) if not row.on_device]
    whole = limited(operator_table(operators, sort, LIMITS.rows), rows)
    return [whole, *made[1:]]


def other_tables(report: Report) -> list[Table]:
    """Return threads, and the functions of worker processes."""
    return [threads_table(report), *worker_function_tables(report, LIMITS.rows)]
