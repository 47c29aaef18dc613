"""A report as JSON in ASCII.

One object with the fields of :class:`fastprof.report.model.Report`, with the same names and
meanings::

    {
      "schema": "fastprof.report/1",
      "meta": {...}, "wall_ms": 1234.5,
      "sections":  [{"name", "count", "total_ms", "self_ms", ...}],
      "steps":     {"count", "skipped", "measured", "wall_ms", "mean_ms", ...,
                    "rows": [{"name", "steps", "total_ms", "mean_ms", "share"}],
                    "split": [{"name", "total_ms", "mean_ms", "share",
                               "places": [[text, ns]]}],
                    "series": {"first", "start_ms": [...], "wall_ms": [...], ...}, ...},
      "functions": [{"qualname", "name", "file", "line", "kind", "calls", ...,
                     "callers": [{"qualname", ...}], "callees": [...]}],
      "threads":   [{"ident", "name", "ended", "total_ms", "raw_total_ms", "functions"}],
      "loaders":   [{"name", "split", "batches", ...}],
      "overhead":  {"estimated_ms", "share", "corrected", "clamped_ms", "text",
                    "least_share", "steps_share", ...},
      "notes":     ["..."],
      "gpu":       {"status", "reason", "devices": [...], "totals": {...}, "use": {...},
                    "classes": [...], "small": {...}, "lines": [...], "captured": [...], ...},
      "kernels":   [{"name", "device", "kind", "count", "total_ms", "blocks_per_sm", ...}],
      "memory":    {"total_bytes", "peak_reserved", "slope_bytes_per_step", ...},
      "operators": {"device", "steps", "windows", "rows": [{"name", "kind", "calls",
                    "self_cpu_ms", "self_device_ms", ...}], "by_shape": [...], ...},
      "worker_functions": [like "threads"],
      "examination": {"findings": [{"rule", "severity", "title", "value", "unit", "threshold",
                    "source", "evidence", "fix", "saving_ms", "saving_share",
                    "saving_total_ms"}], "notes": [like "findings"],
                    "abstained": [[rule, reason]], "explained", "checked", "uncertain"}
    }

The row of a section or a function has its GPU work under "gpu".

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
from fastprof.report.writers import plain_values

SCHEMA = "fastprof.report/1"

#: Fields that only serve the value in memory.
_LEFT_OUT = frozenset({"snapshot", "view", "has_tree", "_examined"})
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
    return found | {name: getattr(value, name) for name in _DERIVED.get(type(value), ())}
