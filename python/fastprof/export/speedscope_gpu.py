"""A speedscope file by GPU time: one profile whose samples are kernels and copies.

The stacks are those of :mod:`fastprof.export.gpu_stacks`; a sample's weight is the time on the GPU.
Their order has no meaning: use the views "left heavy" and "sandwich".
"""

import json
from typing import TextIO

from fastprof.export.gpu_stacks import gpu_stacks
from fastprof.export.speedscope import SCHEMA, unit_of
from fastprof.report.model import Report


def write(report: Report, stream: TextIO) -> None:
    """Write the profile."""
    stacks = [(f, ns) for f, ns in gpu_stacks(report, "a speedscope file by GPU time") if ns]
    frames: dict[str, int] = {}
    samples = [[frames.setdefault(name, len(frames)) for name in stack] for stack, _ in stacks]
    total_ns = sum(ns for _, ns in stacks)
    unit, divisor = unit_of(total_ns)
    weights = [ns // divisor for _, ns in stacks]
    value = {
        "$schema": SCHEMA,
        "exporter": "fastprof",
        "name": "fastprof GPU time",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": "GPU time by launching context",
                "unit": unit,
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        ],
    }
    json.dump(value, stream, allow_nan=False, separators=(",", ":"))
    stream.write("\n")
