"""The functions of a report with most cumulative time, as pstats prints them."""

import io
import pstats

from fastprof.export.pstats_ import as_pstats, stats_dict
from fastprof.report.model import Report

ROWS = 10


def tops(report: Report) -> str:
    """Return the first :data:`ROWS` functions without directories; "" without functions."""
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
    shown = as_pstats(stats, stream)
    shown.sort_stats(pstats.SortKey.CUMULATIVE).print_stats(ROWS)
    return stream.getvalue().strip("\n") + "\n"
