"""Reports on recordings; needs neither the extension nor the recording process."""

from fastprof.report.build import build_report
from fastprof.report.loaders import LoaderRow, WorkerLoad, WorkerRow
from fastprof.report.model import (
    EdgeRow,
    FunctionRow,
    Overhead,
    Report,
    SectionRow,
    StepSection,
    StepTable,
    ThreadTable,
)
from fastprof.report.model_gpu import (
    GpuDeviceRow,
    GpuReport,
    GpuUse,
    KernelRow,
    KernelUse,
    MemoryReport,
)

__all__ = [
    "EdgeRow",
    "FunctionRow",
    "GpuDeviceRow",
    "GpuReport",
    "GpuUse",
    "KernelRow",
    "KernelUse",
    "LoaderRow",
    "MemoryReport",
    "Overhead",
    "Report",
    "SectionRow",
    "StepSection",
    "StepTable",
    "ThreadTable",
    "WorkerLoad",
    "WorkerRow",
    "build_report",
]
