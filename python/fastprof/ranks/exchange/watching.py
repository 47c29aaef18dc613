"""Watches the ranks of a running job from outside."""

from collections.abc import Sequence
from dataclasses import replace

from fastprof.clock import time
from fastprof.names import readable
from fastprof.ranks.exchange.watch_sources import Source
from fastprof.ranks.live.judge import Judge
from fastprof.ranks.live.now import SILENT_S, JobNow
from fastprof.ranks.live.text import HANGS, MOVES
from fastprof.ranks.live.window import decode

_LINES = 6
_LONGEST = 400


class Watch:
    """Judges the windows of one job's ranks, as their rank 0 does; writes nothing.

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
        #: The last beat read from each rank, and when it was new by this machine's clock.
        self._beats: dict[int, tuple[int, float]] = {}
        #: Steps of each rank when the watch began: it has received less than rank 0.
        self._steps: dict[int, int] = {}

    def look(self) -> JobNow | None:
        """Return the current state of the ranks; None: the job has ended.

        Raises:
            OSError: the directory can no longer be read.
        """
        job = self._look()
        if (job is None or self.silent_s() >= SILENT_S) and self._has_followed():
            job = self._look()
        return job

    def _has_followed(self) -> bool:
        """Switch to a newer job, if any: restarted ranks are another job."""
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
        """Close the source."""
        self._source.close()

    def _look(self) -> JobNow | None:
        now = time.monotonic()
        windows = self._source.windows()
        for rank, value, age in windows:
            beat, known = decode(value).beat, self._beats.get(rank)
            if known is None or known[0] != beat:
                self._beats[rank] = beat, now
            # The clock of another machine may differ: a file's age counts only the first time.
            self._judge.hear(rank, value, now - age if known is None else now)
        self._judge.look(now)
        job = self._judge.job_now(now)
        self._steps = self._steps or {row.rank: row.steps for row in job.rows}
        hang = self._hang()
        still = all(self._steps.get(row.rank) == row.steps for row in job.rows)
        if hang and still and not job.verdict.startswith(HANGS):
            job = replace(job, late=None, verdict=f"Rank 0 reported: {hang}")
        over = len(job.rows) == self._world and all(row.ended for row in job.rows)
        return None if over or not windows else job

    def _hang(self) -> str:
        """Return rank 0's sentence on ranks that end no step, unless some have since then."""
        for line in reversed(self.said()):
            if line == MOVES:
                return ""
            if line.startswith(HANGS):
                return line
        return ""

    def silent_s(self) -> float:
        """Return for how many seconds this watch has received no heartbeat."""
        now = time.monotonic()
        return min((now - heard for _, heard in self._beats.values()), default=0.0)

    def said(self) -> Sequence[str]:
        """Return the latest lines of rank 0, the newest last."""
        lines = self._source.verdicts().decode("utf-8", "replace").splitlines()
        return [readable(line, _LONGEST) for line in (lines or self._judge.lines)[-_LINES:]]
