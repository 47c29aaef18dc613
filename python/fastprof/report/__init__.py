"""What a recording means; needs neither the extension nor the process it was made in."""

from fastprof.report.build import build_report
from fastprof.report.model import (
    EdgeRow,
    FunctionRow,
    LoaderRow,
    Overhead,
    Report,
    SectionRow,
    StepSection,
    StepTable,
    ThreadTable,
)

__all__ = [
    "EdgeRow",
    "FunctionRow",
    "LoaderRow",
    "Overhead",
    "Report",
    "SectionRow",
    "StepSection",
    "StepTable",
    "ThreadTable",
    "build_report",
]
