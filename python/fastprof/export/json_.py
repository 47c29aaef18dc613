"""A report as JSON in ASCII.

One object with the fields of :class:`fastprof.report.model.Report`, with the same names and
meanings, except that times in ns (``..._ns``) are in ms (``..._ms``).  "schema" is
"fastprof.report/1"; "examination" holds the findings.

A table of functions has its 25,000 rows with most self time, and so have the tables of all threads
together, but each at least its part of them; "functions_left_out" counts the others, if any.

Times are milliseconds, shares fractions of 1.  Unknown, infinite and NaN values are null.  Integers
above 2**53 are strings.  Fields may be added without a new schema.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from json.encoder import encode_basestring_ascii
from math import isfinite
from operator import attrgetter
from typing import Any, TextIO

from fastprof.findings.examine import examine
from fastprof.names import without_surrogates
from fastprof.report.model import Report
from fastprof.report.model_gpu import (
    BlockingLine,
    GpuDeviceRow,
    GpuReport,
    GpuTimelineRow,
    GpuUse,
    KernelRow,
)
from fastprof.report.rows import EdgeRow, FunctionRow, SectionRow, StepTable, ThreadTable
from fastprof.report.steps import SplitRow
from fastprof.report.writers import EXACT

SCHEMA = "fastprof.report/1"

#: Rows of functions with their callers and callees; each takes 30 us to write.
_FUNCTIONS = 25_000

#: Fields that only serve the value in memory.
_LEFT_OUT = frozenset({"snapshot", "view", "has_tree", "correct_times", "known"})
#: Properties to write in addition to the fields.
_DERIVED: dict[type, tuple[str, ...]] = {
    StepTable: ("measured",),
    SectionRow: ("gpu_ms", "kernels", "blocked_ms"),
    GpuUse: ("delay_ms",),  # the mean, not the sum
    GpuTimelineRow: ("utilization", "idle_data_share", "copy_share", "overlap"),
    GpuDeviceRow: ("utilization",),
    GpuReport: ("utilization",),
    BlockingLine: ("text",),
    KernelRow: ("blocks_rating",),
}


def write(report: Report, stream: TextIO) -> None:
    """Write the report, one line per top-level field and table row."""
    stream.write('{"schema": ' + _text(SCHEMA))
    for name, value in {**_fields(report), "examination": examine(report)}.items():
        stream.write(f",\n{_text(name)}: ")
        if isinstance(value, Sequence) and not isinstance(value, str) and value:
            rows = value[:_FUNCTIONS] if name == "functions" else value
            _write_rows(rows, stream, "[\n", ",\n", "\n]")
            _write_left_out(len(value) - len(rows), stream)
        else:
            stream.write(_text(value))
    stream.write("\n}\n")


def _write_left_out(rows: int, stream: TextIO) -> None:
    if rows:
        stream.write(f', "functions_left_out": {rows}')


def _write_rows(rows: Sequence[Any], stream: TextIO, begin: str, between: str, end: str) -> None:
    # A row at a time: a table may have a million.
    mark, room = begin, _FUNCTIONS
    for row in rows:
        stream.write(mark)
        mark = between
        if isinstance(row, ThreadTable):
            *others, (name, functions) = _fields(row).items()
            stream.write(f"{_text(dict(others))[:-1]}, {_text(name)}: ")
            number = len(functions)
            shown = functions[: max(room, _FUNCTIONS // len(rows))]
            room -= len(shown)
            _write_rows(shown, stream, "[", ", ", "]")
            _write_left_out(number - len(shown), stream)
            stream.write("}")
        else:
            stream.write(_text(row))
    stream.write(end if mark is between else begin + end)


def _text(value: Any) -> str:
    """Return a value as JSON."""
    write_one = _SIMPLE.get(type(value))
    if write_one is not None:
        return write_one(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join([f'{_name(str(k))}: {_text(v)}' for k, v in value.items()])}}}"
    return _text_of_fields(value)


def _text_of_fields(value: Any) -> str:
    """Return a dataclass as JSON; of function rows there may be a million."""
    found = _SCALARS.get(type(value))
    if found is None:
        return _text(_fields(value))
    begins, get = found
    simple = _SIMPLE
    parts = []
    for begin, held in zip(begins, get(value), strict=True):
        write_one = simple.get(type(held))
        parts.append(begin + (_text(held) if write_one is None else write_one(held)))
    return f"{{{''.join(parts)}}}"


def _name(text: str) -> str:
    return encode_basestring_ascii(without_surrogates(text))


_SIMPLE: dict[type, Callable[[Any], str]] = {
    str: _name,
    int: lambda number: str(number) if -EXACT <= number <= EXACT else f'"{number}"',
    float: lambda number: repr(number) if isfinite(number) else "null",
    bool: lambda flag: "true" if flag else "false",
    type(None): lambda _: "null",
}


def _fields(value: Any) -> dict[str, Any]:
    layout = _LAYOUTS.get(type(value))
    if layout is None:
        names = [f.name for f in fields(value) if f.name not in _LEFT_OUT]
        layout = _LAYOUTS[type(value)] = [(n, n.removesuffix("_ns") != n) for n in names]
    found: dict[str, Any] = {}
    for name, is_ns in layout:
        held = getattr(value, name)
        if is_ns:
            found[name[:-3] + "_ms"] = None if held is None else held / 1e6
        else:
            found[name] = held
    if isinstance(value, SplitRow):
        found["places"] = [(text, ns / 1e6) for text, ns in value.places]
    for name in _DERIVED.get(type(value), ()):
        found[name] = getattr(value, name)
    return found


def _scalars(of: type) -> tuple[list[str], Callable[[Any], tuple[Any, ...]]]:
    names = [f.name for f in fields(of)]
    return [f"{', ' * bool(i)}{_name(n)}: " for i, n in enumerate(names)], attrgetter(*names)


#: For types whose fields are written as they are: what precedes each value, and the values.
_SCALARS = {of: _scalars(of) for of in (FunctionRow, EdgeRow)}
_LAYOUTS: dict[type, list[tuple[str, bool]]] = {}
