"""A report as JSON in ASCII.

One object with the fields of :class:`fastprof.report.model.Report`, with the same names and
meanings, except that times in ns (``..._ns``) are in ms (``..._ms``).  "schema" is
"fastprof.report/1"; "examination" holds the findings.

Times are milliseconds, shares fractions of 1.  Unknown, infinite and NaN values are null.  Integers
above 2**53 are strings.  Fields may be added without a new schema.
"""

import json
from dataclasses import fields
from typing import Any, TextIO

from fastprof.report.model import Report
from fastprof.report.model_gpu import (
    BlockingLine,
    GpuDeviceRow,
    GpuReport,
    GpuTimelineRow,
    GpuUse,
    KernelRow,
)
from fastprof.report.rows import SectionRow, StepTable
from fastprof.report.steps import SplitRow
from fastprof.report.writers import plain_values

SCHEMA = "fastprof.report/1"

#: Fields that only serve the value in memory.
_LEFT_OUT = frozenset({"snapshot", "view", "has_tree", "correct_times", "_examined"})
#: Properties to write beside the fields.
_DERIVED: dict[type, tuple[str, ...]] = {
    Report: ("examination",),
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
    stream.write('{"schema": ' + json.dumps(SCHEMA))
    for name, value in plain_values(report, _fields).items():
        stream.write(f",\n{json.dumps(name)}: ")
        if isinstance(value, list) and value:
            stream.write("[\n" + ",\n".join(_dumps(row) for row in value) + "\n]")
        else:
            stream.write(_dumps(value))
    stream.write("\n}\n")


def _dumps(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _fields(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for f in fields(value):
        held = getattr(value, f.name)
        if f.name.endswith("_ns"):
            found[f.name[:-3] + "_ms"] = None if held is None else held / 1e6
        elif f.name not in _LEFT_OUT:
            found[f.name] = held
    if isinstance(value, SplitRow):
        found["places"] = [(text, ns / 1e6) for text, ns in value.places]
    return found | {name: getattr(value, name) for name in _DERIVED.get(type(value), ())}
