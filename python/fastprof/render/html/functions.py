"""The function table of a page, and the call edges, as columns."""

from collections.abc import Sequence
from typing import Any

from fastprof.names import file_name
from fastprof.render.html.limits import LIMITS, PageLimits
from fastprof.render.html.sources import Sources
from fastprof.render.html.strings import Strings
from fastprof.report.functions import FunctionRows, function_keys
from fastprof.report.origin import is_users
from fastprof.report.rows import EdgeRow, FunctionRow, call_counts, key_of
from fastprof.snapshot import Key

#: A function's identity as a caller's name shows it.
_Identity = tuple[str, str, int]


def shown_name(key: FunctionRow | Key) -> str:
    """Return a page's name for a function; a module has its file's name."""
    name = key.qualname or key.name
    return f"{name} {file_name(key.file)}" if name == "<module>" and key.file else name


def function_columns(
    rows: Sequence[FunctionRow],
    strings: Strings,
    limits: PageLimits = LIMITS,
    sources: Sources | None = None,
) -> dict[str, Any]:
    """Return the columns of the function table, most self time first.

    ``total`` is the number of functions, which may exceed the rows; ``self_total`` is the self time
    of all.  ``recursive`` lists (row, calls not inside another call of the same) if that is not all
    calls.  ``users`` lists the rows of the program's functions.  Times are milliseconds.
    """
    shown = rows[: limits.functions]
    whole = rows.self_ms() if isinstance(rows, FunctionRows) else sum(r.self_ms for r in rows)
    counts = [call_counts(row) for row in shown]
    columns: dict[str, Any] = {
        "total": len(rows),
        "self_total": ms(whole),
        "name": [strings.number(shown_name(r)) for r in shown],
        "file": [strings.number(r.file) for r in shown],
        "line": [r.line for r in shown],
        "kind": [strings.number(r.kind) for r in shown],
        "calls": [total for total, _ in counts],
        "recursive": [
            [i, primitive] for i, (total, primitive) in enumerate(counts) if primitive != total
        ],
        "users": [i for i, r in enumerate(shown) if is_users(key_of(r))],
        "self": [ms(r.self_ms) for r in shown],
        "cum": [ms(r.cum_ms) for r in shown],
    }
    if any((r.raw_self_ms, r.raw_cum_ms) != (r.self_ms, r.cum_ms) for r in shown):
        columns["raw_self"] = [ms(r.raw_self_ms) for r in shown]
        columns["raw_cum"] = [ms(r.raw_cum_ms) for r in shown]
    if any(r.resumes for r in shown):
        columns["resumes"] = [r.resumes for r in shown]
    if any(r.gpu for r in shown):
        columns["gpu"] = [ms(r.gpu_ms) for r in shown]
        columns["kernels"] = [r.kernels for r in shown]
        columns["blocked"] = [ms(r.blocked_ms) for r in shown]
    columns["edges"] = _edges(shown, limits)
    if sources is not None:
        columns["source"] = sources.of(shown)
    return columns


def function_numbers(
    rows: Sequence[FunctionRow], keys: Sequence[Key], limits: PageLimits = LIMITS
) -> list[int]:
    """Return the number of each key's function row, -1 without a row."""
    numbers: dict[tuple[str, _Identity, str], int] = {}
    for i, key in enumerate(function_keys(rows, limits.functions)):
        numbers.setdefault((key.kind, _identity(key), key.name), i)
    return [numbers.get((k.kind, _identity(k), k.name), -1) for k in keys]


def ms(value: float | None) -> float | None:
    """Round to a tenth of a microsecond, finer than the tables."""
    return None if value is None else round(value, 4)


def _identity(row: FunctionRow | EdgeRow | Key) -> _Identity:
    return row.qualname, row.file, row.line


def _edges(rows: Sequence[FunctionRow], limits: PageLimits) -> dict[str, Any]:
    """Return each edge once, in the order of the called functions.

    ``count`` is the number of each function's callers; the other columns have one value per edge.
    ``left_out`` counts the edges with least time, which had no room; an edge to a function's main
    caller is left out last.  ``top`` counts calls without a caller in the table: calls from outside
    of all functions, and from callers that were left out.
    """
    numbers: dict[_Identity, int] = {}
    for i, row in enumerate(rows):
        numbers.setdefault(_identity(row), i)
    found = [
        (callee, numbers[_identity(edge)], edge)
        for callee, row in enumerate(rows)
        for edge in row.callers
        if _identity(edge) in numbers
    ]
    total = len(found)
    if total > limits.edges:
        main = {item[0]: item for item in reversed(found)}  # callers are sorted by time
        found.sort(key=lambda item: (main[item[0]] is not item, -item[2].cum_ms))
        del found[limits.edges :]
        found.sort(key=lambda item: item[0])
    count = [0] * len(rows)
    top = [row.calls for row in rows]
    for callee, _, edge in found:
        count[callee] += 1
        top[callee] -= edge.calls
    return {
        "left_out": total - len(found),
        "count": count,
        "top": [[i, calls] for i, calls in enumerate(top) if calls > 0],
        "caller": [caller for _, caller, _ in found],
        "calls": [edge.calls for _, _, edge in found],
        "cum": [ms(edge.cum_ms) for _, _, edge in found],
    }
