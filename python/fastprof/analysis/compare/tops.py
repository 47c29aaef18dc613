"""The functions of a report with most cumulative time, as pstats prints them."""

from __future__ import annotations

import io
import pstats
from typing import Any

from fastprof.exporters.pstats_ import stats_dict
from fastprof.exporters.stats_reader import Entry, Function
from fastprof.report.model import Report

ROWS = 10


class _Table:
    """What :class:`pstats.Stats` takes for a profiler."""

    def __init__(self, stats: dict[Function, Entry]) -> None:
        self.stats = stats

    def create_stats(self) -> None:
        """Nothing to stop."""


def tops(report: Report) -> str:
    """Return the first :data:`ROWS` functions, directories left out; "" without functions."""
    if report.has_tree:
        stats = stats_dict(report.snapshot, correct_times=report.overhead.corrected)
    else:
        stats = {
            (f.file, f.line, f.name): (
                f.primitive_calls, f.calls, f.self_ms / 1e3, f.cum_ms / 1e3, {},
            )
            for f in report.functions
        }  # fmt: skip
    if not stats:
        return ""
    stream = io.StringIO()
    table: Any = _Table(stats)
    shown = pstats.Stats(table, stream=stream).strip_dirs()
    shown.sort_stats(pstats.SortKey.CUMULATIVE).print_stats(ROWS)
    return stream.getvalue().strip("\n") + "\n"
