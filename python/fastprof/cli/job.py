"""Rank 0's lines about all ranks at the end of its run, from their files or live messages."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from fastprof.cli.exit_hooks import complain
from fastprof.clock import time
from fastprof.ranks.live.now import JobNow
from fastprof.ranks.model import SELDOM, Straggler, named
from fastprof.ranks.render.brief import brief_lines, brief_lines_live
from fastprof.read.merge import merge
from fastprof.report.figures import duration, plural, with_percent
from fastprof.tables.layout import wrapped

#: Rank 0 waits this long for the files of the others.
PATIENCE_S = 5.0
#: More files take longer to read than the end of a run should take.
MOST_FILES = 64
#: So do larger ones.
MOST_BYTES = 4_000_000
_LOOK_S = 0.05
#: After this long rank 0 prints that it waits.
_SILENT_S = 1.0
_MERGE = "`fastprof merge` compares all ranks by their files"
#: The line about the ranks if rank 0 did not wait for them.
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
    here: int,
) -> tuple[list[str], list[str]]:
    """Return the ranks of this job in a few lines, and again the late rank, as the last lines.

    Waits for the ranks a few seconds at most.

    Args:
        name: a rank's file name, without the rank.
        began_ns: the start of this run; older files belong to another.
        live: returns the live comparison of the ranks, if there is one; called once.
        may_wait: whether to wait, and to read files; called repeatedly.
        here: this many ranks, the first ones, save their files in ``folder``.
    """
    files: list[str] = []
    if world_size <= MOST_FILES and here > 1:
        files = _wait(folder, name, min(here, world_size), began_ns, may_wait)
    read = may_wait() and _bytes(files) <= MOST_BYTES
    complete = len(files) == world_size
    if not read:
        files = []
    job = None if len(files) == world_size else live()
    said: list[str] = []
    late: Straggler | None = None
    when = ""
    if job is not None and job.known > 1:
        said, late = brief_lines_live(job, width), job.late
        when = ", as compared while the job ran"
    elif len(files) > 1:
        report = merge(files)
        said, late = brief_lines(report, width), report.straggler
    if len(files) < world_size:
        told = world_size > MOST_FILES or complete or not read or not may_wait()
        missing = LATER if told else _missing(folder, files, name, world_size, here)
        said += wrapped(missing, width)
    if late is None:
        return said, []
    if late.rank:
        said += wrapped(
            "The report below covers rank 0 only. A faster rank 0 makes no step shorter while the "
            f"others wait for rank {late.rank}.",
            width,
        )
    return said, wrapped(f"{_late_text(late, when)}: see above.", width)


def _late_text(late: Straggler, when: str) -> str:
    ms, share = duration(late.late_ms), with_percent(late.late_share)
    period = late.period
    steps = "" if period is None else f" in steps {period.first} to {period.last}"
    if late.late_steps is not None and late.late_steps < SELDOM:
        when += f", in {with_percent(late.late_steps)} of the steps"
    return f"Rank {late.rank} is late{steps} by {ms} per step ({share}){when}"


def _bytes(files: Sequence[str]) -> int:
    total = 0
    for path in files:
        with suppress(OSError):  # it will be unreadable, too
            total += os.stat(path).st_size
    return total


def others_counted(files: Sequence[str]) -> list[str]:
    """Return the names of this rank's files, and how many there are of windows and other ranks."""
    own = [name for name in files if not _OTHER_RANK.match(name)]
    more = len(files) - len(own)
    windows = [name for name in own if name.startswith("prof_")]
    if len(windows) > 1:
        own = [name for name in own if name not in windows]
        own.append(f"{plural(len(windows), 'file')} of operator windows (prof_*)")
    return [*own, f"{plural(more, 'file')} of other ranks"] if more else own


def _wait(
    folder: str, name: str, world_size: int, began_ns: int, may_wait: Callable[[], bool]
) -> list[str]:
    """Return the files of this job's ranks, all of them or those written in time."""
    began, pauses = time.monotonic(), 0
    told = False
    paths = {os.path.join(folder, f"rank{rank}_{name}") for rank in range(world_size)}
    # A file server's clock may be behind, so this rank's file counts whatever its time is.
    own = os.path.join(folder, f"rank0_{name}")
    found = {path for path in (own,) if os.path.exists(path)}
    while may_wait():
        found |= {path for path in paths - found if _is_new(path, began_ns)}
        waited = max(time.monotonic() - began, pauses * _LOOK_S)
        if found == paths or waited >= PATIENCE_S:
            break
        if waited >= _SILENT_S and not told:
            told = True
            complain(f"rank 0 waits for the files of the other ranks, {PATIENCE_S:.0f} s at most")
        time.sleep(_LOOK_S)
        pauses += 1
    return sorted(found)


def _is_new(path: str, began_ns: int) -> bool:
    try:
        return os.stat(path).st_mtime_ns >= began_ns
    except OSError:
        return False


def _missing(folder: str, files: Sequence[str], name: str, world_size: int, here: int) -> str:
    missing = [
        rank
        for rank in range(min(here, world_size))
        if os.path.join(folder, f"rank{rank}_{name}") not in files
    ]
    said = ""
    if missing and here > 1:
        why = (
            "it has not ended, was killed, or saved its file elsewhere"
            if len(missing) == 1
            else "they have not ended, were killed, or saved their files elsewhere"
        )
        said = (
            f"{named(missing).capitalize()} saved no file in the {PATIENCE_S:.0f} s after rank 0 "
            f"ended: {why}. "
        )
    apart = list(range(here, world_size))
    if len(apart) == 1:
        said += (
            f"{named(apart).capitalize()} saves its file on another machine, in a folder with "
            f"another name; -o DIR sets one name for all. "
        )
    elif apart:
        said += (
            f"{named(apart).capitalize()} save their files on other machines, in folders with "
            f"other names; -o DIR sets one name for all. "
        )
    return f"{said}{_MERGE}."
