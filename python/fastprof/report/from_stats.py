"""The report of a ``.stats`` file: functions and their callers, nothing else."""

from collections.abc import Mapping
from typing import Any

from fastprof.report.model import Report
from fastprof.report.rows import EdgeRow, FunctionRow, Overhead, StepTable
from fastprof.snapshot import Snapshot

_NOTE = (
    "Read from a .stats file, which holds functions and their callers only: no sections, "
    "steps or threads, and resumes of generators count as calls."
)


def report_from_stats(stats: Mapping[tuple[str, int, str], tuple[Any, ...]]) -> Report:
    """Return the report of a table as in ``pstats.Stats.stats`` (checked by the reader)."""
    callees: dict[tuple[str, int, str], list[EdgeRow]] = {}
    callers: dict[tuple[str, int, str], list[EdgeRow]] = {}
    for function, entry in stats.items():
        for caller, value in entry[4].items():
            if isinstance(value, int):  # the pure Python profiler keeps counts only
                value = (value, value, 0.0, 0.0)
            callers.setdefault(function, []).append(_edge(caller, value))
            callees.setdefault(caller, []).append(_edge(function, value))
    total_s = sum(entry[2] for entry in stats.values())
    rows = []
    for function, entry in sorted(stats.items(), key=lambda item: -item[1][2]):
        primitive, calls, own_s, cumulative_s = entry[:4]
        file, line, name = function
        rows.append(
            FunctionRow(
                qualname=name,
                name=name,
                file=file,
                line=line,
                kind="c" if file == "~" else "python",
                calls=calls,
                primitive_calls=primitive,
                resumes=0,
                self_ms=own_s * 1e3,
                cum_ms=cumulative_s * 1e3,
                raw_self_ms=own_s * 1e3,
                raw_cum_ms=cumulative_s * 1e3,
                share=own_s / total_s if total_s else None,
                callers=tuple(callers.get(function, ())),
                callees=tuple(callees.get(function, ())),
            )
        )
    snapshot = Snapshot(meta={}, duration_ns=0, notes=(_NOTE,))
    return Report(
        meta={},
        wall_ms=total_s * 1e3,
        sections=(),
        steps=StepTable(0, 0, *(None,) * 8, rows=()),
        functions=tuple(rows),
        threads=(),
        loaders=(),
        overhead=Overhead(None, None, False, 0.0, "Times are as they stand in the file."),
        notes=(_NOTE,),
        snapshot=snapshot,
        view=snapshot,
        has_tree=False,
    )


def _edge(function: tuple[str, int, str], value: tuple[Any, ...]) -> EdgeRow:
    calls, primitive, own_s, cumulative_s = value
    file, line, name = function
    return EdgeRow(name, file, line, calls, primitive, 0, own_s * 1e3, cumulative_s * 1e3)
