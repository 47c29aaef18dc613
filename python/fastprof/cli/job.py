"""What rank 0 says of all ranks when its run is over: from their files, else what they told."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence

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
_OTHER_RANK = re.compile(r"(?:rank|prof_)0*[1-9][0-9]*_")


def job_lines(
    folder: str,
    name: str,
    world_size: int,
    began_ns: int,
    live: Callable[[], JobNow | None],
    width: int,
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
    """
    files: list[str] = []
    if world_size <= MOST_FILES:
        files = _wait(folder, name, world_size, began_ns)
    job = None if len(files) == world_size else live()
    said: list[str] = []
    late: Straggler | None = None
    if job is not None and len(job.rows) > 1:
        said, late = brief_lines_live(job, width), job.late
    elif len(files) > 1:
        report = merge(files)
        said, late = brief_lines(report, width), report.straggler
    if len(files) < world_size:
        said += wrapped(_missing(folder, files, name, world_size), width)
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


def _wait(folder: str, name: str, world_size: int, began_ns: int) -> list[str]:
    """Return the files of this job's ranks, all of them or those that are there in time."""
    deadline = time.monotonic() + PATIENCE_S
    paths = {os.path.join(folder, f"rank{rank}_{name}") for rank in range(world_size)}
    found: set[str] = set()
    while True:
        found |= {path for path in paths - found if _is_new(path, began_ns)}
        if found == paths or time.monotonic() >= deadline:
            return sorted(found)
        time.sleep(_LOOK_S)


def _is_new(path: str, began_ns: int) -> bool:
    try:
        return os.stat(path).st_mtime_ns >= began_ns
    except OSError:
        return False


def _missing(folder: str, files: Sequence[str], name: str, world_size: int) -> str:
    again = "`fastprof merge` compares all ranks by their files"
    if world_size > MOST_FILES:
        return f"{again}, when all have ended."
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
        f"ended: {why}. {again}."
    )
