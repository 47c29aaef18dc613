"""Collapsed stacks by GPU time: ``thread;frame;frame;kernel nanoseconds``.

Like :mod:`fastprof.export.collapsed`, but the weights are the durations of the work that each
context launched, and the last frame is the kernel or the copy.
"""

from typing import TextIO

from fastprof.export.collapsed import escaped
from fastprof.export.gpu_stacks import gpu_stacks
from fastprof.report.model import Report


def write(report: Report, stream: TextIO) -> None:
    """Write every context that launched work, and the work without a context."""
    for frames, ns in gpu_stacks(report, "a collapsed-stack file by GPU time"):
        if ns:
            stream.write(f"{';'.join(escaped(frame) for frame in frames)} {ns}\n")
