"""What rank 0 says of all ranks when its run is over: from their files, else what they told."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence

from fastprof.cli.exit_hooks import complain
from fastprof.read.merge import merge
from fastprof.render.ranks_brief import brief_lines, brief_lines_live
from fastprof.report.figures import duration, plural, with_percent
from fastprof.report.ranks import Straggler, named
from fastprof.report.ranks_now import JobNow
from fastprof.tables.layout import wrapped

#: Rank 0 waits so long for the files of the others.
PATIENCE_S = 5.0
#: The files of more ranks take longer to read than the end of a run should.
MOST_FILES = 64
_LOOK_S = 0.05
#: After so long rank 0 says that it waits.
_SILENT_S = 1.0
_MERGE = "`fastprof merge` compares all ranks by their files"
#: What is said of the ranks where nobody waited for them.
LATER = f"{_MERGE}, when all have ended."
_OTHER_RANK = re.compile(r"(?:rank|prof_)0*[1-9][0-9]*_")


def job_lines(
    folder: str,
    name: str,
    world_size: int,
    began_ns: int,
    live: Callable[[], JobNow | None],
    width: int,
    may_wait: Callable[[], bool],
) -> tuple[list[str], list[str]]:
    """Return the ranks of this job in a few lines, and who is late once more, to be said last.

    Waits for the ranks a few seconds at most.

    Args:
        folder: where the files of ranks are.
        name: a rank's file, without what names the rank.
        world_size: number of ranks.
        began_ns: when this run began; older files are of another.
        live: tells how the ranks fared, if they told each other; called once.
        width: columns of a line.
        may_wait: whether to wait, and to read files; asked again and again.
    """
    files: list[str] = []
    if world_size <= MOST_FILES:
        files = _wait(folder, name, world_size, began_ns, may_wait)
    if not may_wait():
        files = []
    job = None if len(files) == world_size else live()
    said: list[str] = []
    late: Straggler | None = None
    if job is not None and len(job.rows) > 1:
        said, late = brief_lines_live(job, width), job.late
    elif len(files) > 1:
        report = merge(files)
        said, late = brief_lines(report, width), report.straggler
    if len(files) < world_size:
        missing = _missing(folder, files, name, world_size) if may_wait() else LATER
        said += wrapped(missing, width)
    if late is None:
        return said, []
    if late.rank:
        said += wrapped(
            "What follows is of rank 0 alone: a fix there makes no step shorter while the others "
            f"wait for rank {late.rank}.",
            width,
        )
    ms, share = duration(late.late_ms), with_percent(late.late_share)
    return said, wrapped(f"Rank {late.rank} is late by {ms} per step ({share}): see above.", width)


def others_counted(files: Sequence[str]) -> list[str]:
    """Return the files of this rank by name, and how many there are of others."""
    own = [name for name in files if not _OTHER_RANK.match(name)]
    more = len(files) - len(own)
    return [*own, f"{plural(more, 'file')} of other ranks"] if more else own


def _wait(
    folder: str, name: str, world_size: int, began_ns: int, may_wait: Callable[[], bool]
) -> list[str]:
    """Return the files of this job's ranks, all of them or those that are there in time."""
    began = time.monotonic()
    told = False
    paths = {os.path.join(folder, f"rank{rank}_{name}") for rank in range(world_size)}
    found: set[str] = set()
    while may_wait():
        found |= {path for path in paths - found if _is_new(path, began_ns)}
        waited = time.monotonic() - began
        if found == paths or waited >= PATIENCE_S:
            break
        if waited >= _SILENT_S and not told:
            told = True
            complain(f"rank 0 waits for the files of the other ranks, {PATIENCE_S:.0f} s at most")
        time.sleep(_LOOK_S)
    return sorted(found)


def _is_new(path: str, began_ns: int) -> bool:
    try:
        return os.stat(path).st_mtime_ns >= began_ns
    except OSError:
        return False


def _missing(folder: str, files: Sequence[str], name: str, world_size: int) -> str:
    if world_size > MOST_FILES:
        return LATER
    missing = [
        rank
        for rank in range(world_size)
        if os.path.join(folder, f"rank{rank}_{name}") not in files
    ]
    one = len(missing) == 1
    why = (
        "it has not ended, was killed, or writes to another disk"
        if one
        else "they have not ended, were killed, or write to another disk"
    )
    return (
        f"{named(missing).capitalize()} saved no file in the {PATIENCE_S:.0f} s after rank 0 "
        f"ended: {why}. {_MERGE}."
    )
