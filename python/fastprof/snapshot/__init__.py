"""The recorded data of a run, raw and frozen, between recording and reading."""

from fastprof.snapshot.calibration import Calibration, EventCost
from fastprof.snapshot.model import (
    Histogram,
    Key,
    LoaderStats,
    NodeTable,
    SectionStats,
    Snapshot,
    StepRow,
    Steps,
    ThreadTree,
)

__all__ = [
    "Calibration", "EventCost", "Histogram", "Key", "LoaderStats", "NodeTable",
    "SectionStats", "Snapshot", "StepRow", "Steps", "ThreadTree",
]  # fmt: skip
