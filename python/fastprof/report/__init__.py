"""Reports on recordings; needs neither the extension nor the recording process."""

from fastprof.report.loaders import LoaderRow, WorkerLoad, WorkerRow
from fastprof.report.model import Report, build_report
from fastprof.report.model_gpu import (
    GpuDeviceRow,
    GpuReport,
    GpuUse,
    KernelRow,
    KernelUse,
    MemoryReport,
)
from fastprof.report.rows import (
    EdgeRow,
    FunctionRow,
    Overhead,
    SectionRow,
    StepSection,
    StepTable,
    ThreadTable,
)

__all__ = [
    "EdgeRow", "FunctionRow", "GpuDeviceRow", "GpuReport", "GpuUse", "KernelRow", "KernelUse",
    "LoaderRow", "MemoryReport", "Overhead", "Report", "SectionRow", "StepSection",
    "StepTable", "ThreadTable", "WorkerLoad", "WorkerRow", "build_report",
]  # fmt: skip
