"""The ranks of a running job, seen from outside."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fastprof.names import ascii_name
from fastprof.report.ranks_live import Judge
from fastprof.report.ranks_now import SILENT_S, JobNow
from fastprof.report.ranks_window import decode
from fastprof.session.ranks.watch_sources import Source

_LINES = 6
_LONGEST = 400


class Watch:
    """Judges what the ranks of one job publish, as their rank 0 does; writes nothing.

    Args:
        source: where they publish it.

    Raises:
        ValueError: no rank has published anything there.
        OSError: it cannot be read.
    """

    def __init__(self, source: Source) -> None:
        self._take(source)

    def _take(self, source: Source) -> None:
        first = next(iter(source.windows()), None)
        if first is None:
            source.close()
            raise ValueError(source.nothing)
        self._source = source
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
        """Take a newer job: ranks that were restarted are another job."""
        try:
            newer = self._source.newer()
            if newer is None:
                return False
            before = self._source
            self._take(newer)
            before.close()
        except (OSError, ValueError):
            return False
        return True

    def close(self) -> None:
        """Let go of the place."""
        self._source.close()

    def _look(self) -> JobNow | None:
        now = time.monotonic()
        windows = self._source.windows()
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
        lines = self._source.verdicts().decode("ascii", "replace").splitlines()
        return [ascii_name(line, _LONGEST) for line in (lines or self._judge.lines)[-_LINES:]]
