"""Writes one trace file per window; no file replaces another."""

import os

from fastprof.errors import MergeError
from fastprof.export.trace import gz as trace_gz
from fastprof.export.trace import write as trace
from fastprof.export.trace.merge import TorchTrace
from fastprof.fileio import atomic_write
from fastprof.report.model import Report


def file_name(rank: int, number: int) -> str:
    """Return the name of the file of window ``number``, counted from 0."""
    return f"rank{rank}_trace{'' if number == 0 else f'_{number + 1}'}.json.gz"


def save_windows(
    report: Report,
    directory: str | os.PathLike[str],
    rank: int,
    *,
    merge: str | os.PathLike[str] | None = None,
) -> list[str]:
    """Write one file per window; return their names.

    Args:
        report: a report with a trace.
        directory: created if it does not exist.
        rank: the rank of this process, part of the file names.
        merge: a trace of torch.profiler, whose events in each window are added.

    Raises:
        ExportError: the report has no trace.
        OSError: a file cannot be written, or ``merge`` cannot be read.
        MergeError: ``merge`` is not such a trace, or none of its events lies in the windows.  The
            report's own windows are written anyway.
    """
    found = trace.trace_of(report)
    os.makedirs(directory, exist_ok=True)
    writer = trace.Writer(report)
    theirs: TorchTrace | None = None
    problem: OSError | MergeError | None = None
    if merge is not None:
        try:
            theirs = TorchTrace(merge)
            theirs.check(found.windows)
        except (OSError, MergeError) as error:
            theirs, problem = None, error
    names = []
    for number, window in enumerate(found.windows):
        more = () if theirs is None else theirs.events((window,))
        name = file_name(rank, number)
        with atomic_write(os.path.join(os.path.abspath(directory), name)) as stream:
            trace_gz.write_window(writer, stream, number, more)
        names.append(name)
    if problem is not None:
        raise problem
    return names
