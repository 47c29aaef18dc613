"""The tables about operators, for reports and for ``profile_stats.txt``."""

from collections.abc import Callable

from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.report.operators import OperatorReport, OperatorRow
from fastprof.tables.cells import Table, number, percent, short, table_of, torch_size

#: Rows of the tables in a report.
OPERATOR_ROWS = 20
MEMORY_ROWS = 10


def operator_tables(report: Report) -> list[Table]:
    """Return the tables about operators; none if they were not recorded."""
    operators = report.operators
    if operators is None or not operators.rows:
        return []
    limit = operators.row_limit
    limit = OPERATOR_ROWS if limit < 0 else min(limit, OPERATOR_ROWS)
    tables = [operator_table(operators, "self_device" if operators.device else "self_cpu", limit)]
    if operators.memory:
        tables.append(memory_table(operators, MEMORY_ROWS))
    return tables


def operator_table(operators: OperatorReport, sort: str, limit: int) -> Table:
    """Return the operators, most of ``sort`` first, at most ``limit`` (-1: all).

    Work on the device has no separate rows: its time belongs to the operator that launched it.
    """
    rows = [row for row in operators.sorted_by(sort) if not row.on_device]
    shown = rows if limit < 0 else rows[:limit]
    columns: list[tuple[str, Callable[[OperatorRow], str]]] = [
        ("operator", lambda r: short(r.name)),
        ("calls", lambda r: str(r.calls)),
        ("self cpu ms", lambda r: number(r.self_cpu_ms)),
        ("share %", lambda r: percent(r.share)),
        ("cpu ms", lambda r: number(r.cpu_ms)),
    ]
    if operators.device:
        name = short(operators.device)
        columns += [
            (f"self {name} ms", lambda r: number(r.self_device_ms)),
            (f"{name} share %", lambda r: percent(r.device_share)),
            (f"{name} ms", lambda r: number(r.device_ms)),
        ]
    if any(row.flops for row in shown):
        columns.append(("MFLOP", lambda r: number(None if r.flops is None else r.flops / 1e6)))
    title = (
        f"Operators, most {_WORDS[sort].format(short(operators.device) or 'device')} first "
        f"({len(shown)} of {len(rows)}), in {steps_text(operators)}"
    )
    return table_of(title, columns, shown)


_WORDS = {
    "self_device": "self {} time",
    "self_cpu": "self CPU time",
    "calls": "calls",
    "device": "{} time",
    "cpu": "CPU time",
    "self_device_bytes": "self {} memory",
    "self_cpu_bytes": "self CPU memory",
}


def steps_text(operators: OperatorReport) -> str:
    """Return which steps the figures cover, counted from 0."""
    shown = [f"{a}-{b}" if b > a else str(a) for a, b in operators.windows[:5]]
    more = len(operators.windows) - len(shown)
    if more:
        shown.append(plural(more, "more window"))
    return f"{plural(operators.steps, 'step')} ({', '.join(shown)})"


def memory_table(operators: OperatorReport, limit: int) -> Table:
    """Return memory by operator: ``Name | CPU Mem | CUDA Mem | Self CUDA Mem``.

    Most self memory of the device first; without a device, of the CPU.
    """
    device = short(operators.device).upper() or "CUDA"
    sort = "self_device_bytes" if operators.device else "self_cpu_bytes"
    rows = [row for row in operators.sorted_by(sort) if not row.on_device]
    columns: list[tuple[str, Callable[[OperatorRow], str]]] = [
        ("Name", lambda r: short(r.name)),
        ("CPU Mem", lambda r: torch_size(r.cpu_bytes)),
        (f"{device} Mem", lambda r: torch_size(r.device_bytes)),
        (f"Self {device} Mem", lambda r: torch_size(r.self_device_bytes)),
    ]
    if not operators.device:
        columns.insert(2, ("Self CPU Mem", lambda r: torch_size(r.self_cpu_bytes)))
    where = f"self {device}" if operators.device else "self CPU"
    return table_of(f"Memory of operators, most {where} memory first", columns, rows[:limit])
