"""Reads saved runs; the content decides the format, not the name."""

import os

from fastprof.errors import LoadError
from fastprof.fileio import read_bounded
from fastprof.read import fprof
from fastprof.read import pstats as stats_reader
from fastprof.read.limits import Limits
from fastprof.read.newest import newest_run
from fastprof.report.build import build_report
from fastprof.report.from_stats import report_from_stats
from fastprof.report.model import Report

_DEFAULT = Limits()


def load(
    path: str | os.PathLike[str], *, correct_times: bool = True, limits: Limits = _DEFAULT
) -> Report:
    """Read a saved run (``.fprof``), or a ``.stats`` file of any profiler.

    The file may come from anywhere: nothing in it is executed, and it cannot take more time or
    memory than ``limits`` allow.

    Args:
        path: the file, or a folder: its newest run.
        correct_times: subtract the hook's calibrated cost, as in the report of a run.
        limits: limits on each aspect of its size.

    Raises:
        LoadError: (a ValueError) neither of the two, damaged, or beyond a limit; one line that
            begins with the path.
        OSError: it cannot be read.
    """
    path = newest_run(path)
    data = read_bounded(path, max_bytes=limits.max_bytes)
    try:
        if data.startswith(fprof.MAGIC):
            return build_report(fprof.parse(data, limits), correct_times=correct_times)
        if _is_marshalled_dict(data):
            return report_from_stats(stats_reader.parse(data, limits))
    except ValueError as error:
        raise LoadError(f"{os.fsdecode(path)!r}: {error}") from None
    raise LoadError(f"{os.fsdecode(path)!r}: neither a saved run (.fprof) nor a .stats file")


def _is_marshalled_dict(data: bytes) -> bool:
    # JSON begins with the same brace, but a tuple or the end of the dict does not follow it.
    return data[:1] in (b"{", b"\xfb") and data[1:2] in (b"(", b")", b"\xa8", b"\xa9", b"0")
