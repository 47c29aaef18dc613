"""The ranks of a running job, seen from outside: reads the directory where they meet."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from fastprof.names import ascii_name
from fastprof.report.ranks_live import Judge
from fastprof.report.ranks_now import SILENT_S, JobNow
from fastprof.report.ranks_row import MAX_RANKS
from fastprof.report.ranks_window import decode
from fastprof.session.ranks.channel import VERDICTS
from fastprof.session.ranks.directory import read_value

_WINDOW = "window-"
_LINES = 6
_LONGEST = 400


class Watch:
    """Judges what the ranks of one job publish, as their rank 0 does; writes nothing.

    Args:
        folder: where the ranks of jobs meet, or that of one job in it; of several jobs the
            one that was heard of last is taken.

    Raises:
        ValueError: no rank of a job has published anything there.
        OSError: it is no directory, or may not be read.
    """

    def __init__(self, folder: str) -> None:
        self._root = folder
        self._take(_job_in(folder))

    def _take(self, folder: str) -> None:
        self._folder = folder
        first = next(iter(self._windows()), None)
        if first is None:
            raise ValueError(_nothing(folder))
        window = decode(first[1])
        self._judge = Judge(window.job, window.world_size)
        self._world = window.world_size
        #: Of each rank the beat that was read last, and when it was new by the clock here.
        self._beats: dict[int, tuple[int, float]] = {}

    def look(self) -> JobNow | None:
        """Return how the ranks fare now; None: the job has ended.

        Raises:
            OSError: the directory may not be read any more.
        """
        job = self._look()
        if (job is None or self.silent_s() >= SILENT_S) and self._has_followed():
            job = self._look()
        return job

    def _has_followed(self) -> bool:
        """Take a newer job in the same directory: ranks that were restarted are another job."""
        before = self._folder
        try:
            newest = _job_in(self._root)
            if newest == before:
                return False
            self._take(newest)
        except (OSError, ValueError):
            self._folder = before
            return False
        return True

    def _look(self) -> JobNow | None:
        now = time.monotonic()
        windows = self._windows()
        for rank, value, age in windows:
            beat, known = decode(value).beat, self._beats.get(rank)
            if known is None or known[0] != beat:
                self._beats[rank] = beat, now
            # The clock of another machine may differ: files are as old as they say only once.
            self._judge.hear(rank, value, now - age if known is None else now)
        self._judge.look(now)
        job = self._judge.job_now(now)
        over = len(job.rows) == self._world and all(row.ended for row in job.rows)
        return None if over or not windows else job

    def silent_s(self) -> float:
        """Return for how many seconds no rank has been heard since this began to watch."""
        now = time.monotonic()
        return min((now - heard for _, heard in self._beats.values()), default=0.0)

    def said(self) -> Sequence[str]:
        """Return what rank 0 has said of late, the newest last."""
        value = read_value(os.path.join(self._folder, VERDICTS)) or b""
        lines = value.decode("ascii", "replace").splitlines() or self._judge.lines
        return [ascii_name(line, _LONGEST) for line in lines[-_LINES:]]

    def _windows(self) -> list[tuple[int, bytes, float]]:
        """Return rank, window and its age in seconds, of those that can be read."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            number = name.removeprefix(_WINDOW)
            if number == name or not (number.isascii() and number.isdigit() and len(number) < 8):
                continue
            path = os.path.join(self._folder, name)
            value, written = read_value(path), _written(path)
            if value is None or written is None or int(number) >= MAX_RANKS:
                continue
            try:
                decode(value)
            except ValueError:
                continue
            found.append((int(number), value, max(0.0, time.time() - written)))
        return sorted(found)


def _job_in(folder: str) -> str:
    names = os.listdir(folder)
    if any(name.startswith(_WINDOW) for name in names):
        return folder
    jobs = [os.path.join(folder, name) for name in names if name.startswith("fastprof-")]
    heard = {}
    for job in jobs:
        times = [_written(os.path.join(job, name)) or 0.0 for name in _names(job)]
        heard[job] = max(times, default=0.0)
    newest = max(heard, key=lambda job: heard[job], default=None)
    if newest is None or not heard[newest]:
        raise ValueError(_nothing(folder))
    return newest


def _names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.startswith(_WINDOW)]
    except OSError:
        return []


def _written(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _nothing(folder: str) -> str:
    return (
        f"no rank has published anything in {folder!a}: name the directory that FASTPROF_RANKS_DIR "
        "names in the job, while the job runs"
    )
