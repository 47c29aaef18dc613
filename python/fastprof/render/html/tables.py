"""The tables of a page: those of the text report, with names in full where it cuts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastprof.names import printable_name
from fastprof.render.html.limits import LIMITS
from fastprof.render.html.run_phases import phase_name
from fastprof.report.model import Report, SectionRow, StepSection
from fastprof.report.outliers import Outlier, OutlierFunction, OutlierSection
from fastprof.report.targets import target_text
from fastprof.tables.cells import Table, number, percent, table_of
from fastprof.tables.gpu import gpu_tables, has_gpu, kernels
from fastprof.tables.loaders import loader_tables
from fastprof.tables.operators import operator_table, operator_tables
from fastprof.tables.report import threads_table, worker_function_tables
from fastprof.tables.run_phases import phases_table

_MAX_NAME = 1000


def name(text: str) -> str:
    """Return a name fit for display, whatever is in it; an empty one has quotes."""
    return printable_name(text, _MAX_NAME) or '""'


def part(table: Table, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a table as the page wants it, up to the limit.

    ``names`` take the place of its first column.
    """
    rows = [list(row) for row in table.rows[: LIMITS.rows]]
    cut = f" (the first {len(rows)} of {len(table.rows)})" if len(rows) < len(table.rows) else ""
    for row, text in zip(rows, names or (), strict=False):
        row[0] = name(text)
    return {
        "kind": "table",
        "title": table.title + cut,
        "headers": list(table.headers),
        "left": sorted(table.left),
        "rows": rows,
    }


def step_table(report: Report) -> dict[str, Any]:
    """What each section takes of a step, beside its target."""
    steps = report.steps
    columns: list[tuple[str, Callable[[StepSection], str]]] = [
        ("section", lambda r: name(r.name)),
        ("steps", lambda r: str(steps.measured if r.steps is None else r.steps)),
        ("total ms", lambda r: number(r.total_ms)),
        ("ms per step", lambda r: number(r.mean_ms)),
        ("share %", lambda r: percent(r.share)),
        ("target %", lambda r: target_text(r.name)),
    ]
    table = table_of("Sections of a step (wall time as measured)", columns, steps.rows)
    whole = ("step", str(steps.measured), number(steps.wall_ms), number(steps.mean_ms), "100", "")
    return part(table) | {"total": list(whole)}


def phase_parts(report: Report) -> list[dict[str, Any]]:
    """What each phase of the run took."""
    table = phases_table(report)
    return [part(table)] if table.rows else []


def section_table(report: Report) -> dict[str, Any]:
    """All sections with the statistics of single entries."""
    columns: list[tuple[str, Callable[[SectionRow], str]]] = [
        ("section", lambda r: name(r.name)),
        ("count", lambda r: str(r.count)),
        ("total ms", lambda r: number(r.total_ms)),
        ("self ms", lambda r: number(r.self_ms)),
        ("share %", lambda r: percent(r.share)),
        ("step target %", lambda r: target_text(r.name)),
        ("mean ms", lambda r: number(r.mean_ms)),
        ("min ms", lambda r: number(r.min_ms)),
        ("p50 ms", lambda r: number(r.p50_ms)),
        ("p95 ms", lambda r: number(r.p95_ms)),
        ("p99 ms", lambda r: number(r.p99_ms)),
        ("max ms", lambda r: number(r.max_ms)),
    ]
    if has_gpu(report):
        columns += [
            ("gpu ms", lambda r: number(r.gpu_ms)),
            ("kernels", lambda r: "n/a" if r.kernels is None else str(r.kernels)),
            ("blocked ms", lambda r: number(r.blocked_ms)),
        ]
    columns.append(("errors", lambda r: str(r.errors)))
    of = f" ({phase_name(report.phase)})" if report.phases else ""
    return part(table_of(f"Sections, in order of first use{of}", columns, report.sections))


def outlier(step: Outlier) -> dict[str, Any]:
    """One of the slowest steps: what was different in it, and its tables."""
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
    return {
        "title": f"Step {step.index}: {number(step.wall_ms)} ms, {number(step.ratio, 1)} times "
        f"the usual {number(step.typical_ms)} ms",
        # The first one says again what the title does.
        "sentences": [name(text) for text in step.sentences[1:]],
        "tables": [part(table) for table in made],
    }


def kernel_table(report: Report) -> list[dict[str, Any]]:
    """All kernels, up to the limit."""
    if report.gpu is None or not report.kernels:
        return []
    table = kernels(report.kernels, report.gpu, LIMITS.rows)
    return [part(table, [row.name for row in report.kernels])]


def gpu_parts(report: Report) -> list[dict[str, Any]]:
    """Devices, totals, copies, waits, memory; kernels have a chapter of their own."""
    return [part(t) for t in gpu_tables(report) if t.rows and t.headers[0] != "kernel"]


def operator_parts(report: Report) -> list[dict[str, Any]]:
    """Operators up to the limit, and their memory."""
    operators = report.operators
    made = operator_tables(report)
    if operators is None or not made:
        return []
    sort = "self_device" if operators.device else "self_cpu"
    rows = [row.name for row in operators.sorted_by(sort) if not row.on_device]
    whole = part(operator_table(operators, sort, LIMITS.rows), rows)
    return [whole, *(part(table) for table in made[1:] if table.rows)]


def loader_parts(report: Report) -> list[dict[str, Any]]:
    """Loaders and their workers."""
    return [part(table) for table in loader_tables(report) if table.rows]


def other_parts(report: Report) -> list[dict[str, Any]]:
    """Threads, and the functions of worker processes."""
    made = [threads_table(report), *worker_function_tables(report, LIMITS.rows)]
    return [part(table) for table in made if table.rows]
