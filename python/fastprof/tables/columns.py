"""The tables of a report as columns of plain values, for CSV files and data frames.

Values come from the report, not rounded; names are printable; an unknown value is None.  Units are
in the names of the columns.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from fastprof.names import printable_name
from fastprof.report.model import Report
from fastprof.report.targets import STEP_TARGETS

#: Types of cell contents.
Value = str | int | float | bool | None
#: Column names, and one list of values per row.
Columns = tuple[tuple[str, ...], list[tuple[Value, ...]]]

_GPU = ("gpu_ms", "gpu_self_ms", "kernels", "blocked_ms")


def columns(report: Report, table: str) -> Columns:
    """Return a table of the report.

    Args:
        report: the report.
        table: ``"functions"``, ``"sections"``, ``"step_sections"`` (where a step goes),
            ``"steps"`` (one row per step, the last 4096), ``"kernels"`` or ``"loaders"``.

    Raises:
        ValueError: no such table.
    """
    make = TABLES.get(table)
    if make is None:
        known = ", ".join(repr(name) for name in TABLES)
        raise ValueError(f"no table {table!r:.80}; there are: {known}")
    return make(report)


def frame(report: Report, table: str) -> Any:
    """Return one table as a pandas ``DataFrame``."""
    names, rows = columns(report, table)
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError as error:
        raise ImportError(
            "to_frame() needs pandas (pip install 'fastprof[pandas]'); to_csv() does not"
        ) from error
    return pandas.DataFrame(rows, columns=list(names))


def _functions(report: Report) -> Columns:
    names = (
        "qualname", "name", "file", "line", "kind", "calls", "primitive_calls", "resumes",
        "self_ms", "cum_ms", "raw_self_ms", "raw_cum_ms", "share", *_GPU,
    )  # fmt: skip
    return names, _attributes(report.functions, names)


def _sections(report: Report) -> Columns:
    names = (
        "name", "count", "total_ms", "self_ms", "mean_ms", "min_ms", "p50_ms", "p95_ms", "p99_ms",
        "max_ms", "share", "errors", "open", "raw_total_ms", *_GPU,
    )  # fmt: skip
    return names, _attributes(report.sections, names)


def _step_sections(report: Report) -> Columns:
    names = ("name", "steps", "total_ms", "mean_ms", "share")
    rows = _attributes(report.shown_steps.rows, names)
    targets = [STEP_TARGETS.get(row.name) for row in report.shown_steps.rows]
    return (*names, "target_low", "target_high"), [
        (*row, *((None, None) if t is None else (t.low, t.high)))
        for row, t in zip(rows, targets, strict=True)
    ]


def _steps(report: Report) -> Columns:
    series = report.shown_steps.series
    found: dict[str, Sequence[Value]] = {}
    if len(series):
        found["step"] = series.numbers
        found["start_ms"] = series.start_ms
        found["wall_ms"] = series.wall_ms
        for name, values in series.names.items():
            shown = printable_name(name)
            column = f"section_{shown}_ms"
            while column in found:  # two names may become the same
                shown += "'"
                column = f"section_{shown}_ms"
            found[column] = values
        for name in ("cpu_ms", "gc_ms", "switches", "faults", "cpu_wait_ms"):
            found[name] = getattr(series, name)
    else:  # there was no memory for more than durations
        steps = report.snapshot.steps
        found["step"] = range(steps.count - len(steps.recent_ns), steps.count)
        found["wall_ms"] = [ns / 1e6 for ns in steps.recent_ns]
    known = {name: values for name, values in found.items() if values or name == "wall_ms"}
    return tuple(known), list(zip(*known.values(), strict=True))


def _kernels(report: Report) -> Columns:
    names = (
        "name", "device", "kind", "tensor_cores", "count", "total_ms", "share", "mean_us",
        "min_us", "max_us", "small_count", "blocks_per_sm", "occupancy", "grid", "block",
        "registers", "shared_bytes", "configurations",
    )  # fmt: skip
    return names, _attributes(report.kernels, names)


def _loaders(report: Report) -> Columns:
    names = (
        "name", "split", "batches", "realized", "weight", "time_share", "data_ms", "forward_ms",
        "backward_ms", "optimizer_ms", "batch_wait_ms",
    )  # fmt: skip
    of_workers = ("workers", "prefetch", "batch_size", "blocked_share", "blocked_ms", "load_ms",
                  "needed")  # fmt: skip
    rows = _attributes(report.loaders, names)
    workers = [
        tuple(None if row.workers is None else getattr(row.workers, name) for name in of_workers)
        for row in report.loaders
    ]
    return (*names, *of_workers), [a + b for a, b in zip(rows, workers, strict=True)]


TABLES: dict[str, Callable[[Report], Columns]] = {
    "functions": _functions,
    "sections": _sections,
    "step_sections": _step_sections,
    "steps": _steps,
    "kernels": _kernels,
    "loaders": _loaders,
}


def _attributes(rows: Sequence[Any], names: Sequence[str]) -> list[tuple[Value, ...]]:
    return [tuple(_value(getattr(row, name)) for name in names) for row in rows]


def _value(held: Any) -> Value:
    if isinstance(held, str):
        return printable_name(held)
    if isinstance(held, tuple):  # the three sizes of a grid or block
        return "x".join(map(str, held))
    return held  # type: ignore[no-any-return]
