"""Finds late ranks in large jobs, where rank 0 reads only merged groups of ranks.

The judge knows all ranks as histograms, and single ranks only if a group has their windows:
:mod:`fastprof.ranks.groups.judge` compares these with all.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fastprof.ranks.blocks import MIN_BLOCKS, HeardRank, run_in_blocks
from fastprof.ranks.groups.judge import compare_with_all
from fastprof.ranks.groups.summary import CPU, RankGroup, RankHeard
from fastprof.ranks.live.compared import Compared
from fastprof.ranks.live.hang import ASKED, QuietRanks
from fastprof.ranks.live.judge import Judge
from fastprof.ranks.live.now import SILENT_S, JobNow
from fastprof.ranks.live.window import RankWindow
from fastprof.ranks.row import RankRun

#: A block of steps is judged if this share of the ranks has published it.
_TOLD = 0.5


class GroupJudge(Judge):
    """Like :class:`~fastprof.ranks.live.judge.Judge`, for the group of all ranks."""

    def __init__(self, job: str, world_size: int) -> None:
        super().__init__(job, world_size)
        self._group = RankGroup(job, world_size)
        self._named: dict[int, RankHeard] = {}

    def hear_group(self, group: RankGroup, now: float) -> None:
        """Take the group of all ranks with a heartbeat; ``now``: seconds of any one clock."""
        if (group.job, group.world_size) != (self._group.job, self._group.world_size):
            self.ignored["of another job or rank"] += 1
            return
        self._group = group
        for rank, value in _windows(group).items():
            self.hear(rank, value, now)
        self._named = {one.rank: one for one in (*group.standing, *group.lost)}
        for one in self._named.values():
            self._ranks[one.rank] = self._as_heard(one, now)
        kept = {*_windows(group), *self._named, *self._lates}
        for rank in [rank for rank in self._ranks if rank not in kept]:
            if self._ranks[rank].said:  # it sends heartbeats again
                self._ranks[rank].heard = now
            else:
                del self._ranks[rank]

    @property
    def followed(self) -> list[int]:
        """The late ranks; their windows must be read even while others have more work."""
        return sorted(self._lates)

    def job_now(self, now: float) -> JobNow:
        """Return the state of the job; its rows are ranks that are late, stalled or lost."""
        job = super().job_now(now)
        late = () if job.late is None else (job.late.rank, *job.late.also)
        rows = tuple(row for row in job.rows if row.rank in late or row.rank in self._named)
        return replace(job, rows=rows, heard=self._group.heard)

    def _as_heard(self, one: RankHeard, now: float) -> HeardRank:
        known = self._ranks.get(one.rank)
        window = RankWindow(
            self._group.job, one.rank, self._group.world_size, one.host, 0, one.steps,
            place=one.place,
        )  # fmt: skip
        at = now - one.seconds
        lost = any(lost.rank == one.rank for lost in self._group.lost)
        said = known is not None and known.said
        return HeardRank(window, at if lost else now, at, lives=True, said=said)

    def _due(self, now: float) -> tuple[list[int], int]:
        # The place of a stalled rank is known, but none of its blocks.
        known = {rank: self._ranks.get(rank) for rank in {*_windows(self._group), *self._lates}}
        live = [
            number
            for number, rank in sorted(known.items())
            if rank is not None and rank.blocks and now - rank.heard < SILENT_S
        ]
        starts, size = self._starts(*self._signal())
        return live, starts[-1] + size if starts and live else -1

    def _signal(self) -> tuple[str, int]:
        """Return the signal that defines waiting on most ranks, and their number."""
        ranks = {s: sum(of.values()) for s, of in self._group.works.items() if s != CPU}
        return max(((s, n) for s, n in ranks.items()), key=lambda pair: pair[1], default=("", 0))

    def _starts(self, signal: str, ranks: int) -> tuple[list[int], int]:
        """Return the blocks that enough ranks have published, and their length."""
        blocks = self._group.blocks.get(signal, {})
        sizes: Counter[int] = Counter()
        for (size, _), of in blocks.items():
            sizes[size] += sum(of.values())
        if not sizes:
            return [], 0
        size = max(sizes, key=lambda size: sizes[size])
        told = _TOLD * ranks
        return sorted(
            s for (n, s), of in blocks.items() if n == size and sum(of.values()) >= told
        ), (size)

    def _compare(self, live: Sequence[int], end: int) -> Compared | None:
        signal, judged = self._signal()
        starts, size = self._starts(signal, judged)
        if len(starts) < MIN_BLOCKS or judged < 2:
            return None
        runs = [run_in_blocks(self._ranks[rank], size, starts) for rank in live]
        return compare_with_all(self._group, [run for run in runs if run], signal, starts, size)

    def _compare_minute(self, live: Sequence[int], end: int) -> Compared | None:
        """Return None: the windows of single ranks are those of the latest ranks only."""
        return None

    def _history(self, runs: Sequence[RankRun]) -> list[RankRun]:
        """Return the runs unchanged: the median rank has only this window."""
        return list(runs)

    def _others(self, late: int, live: Sequence[int]) -> list[int]:
        """Return ranks from all over the job: neighbours of the late rank may share its fault."""
        apart = max(1, self._world // ASKED)
        others = ((late + i * apart) % self._world for i in range(1, ASKED))
        return [rank for rank in dict.fromkeys(others) if rank != late]

    def _quiet(self, now: float, *, once: bool = False) -> QuietRanks:
        group = self._group
        stand = [self._ranks[one.rank] for one in group.standing]
        lost = [self._ranks[one.rank] for one in group.lost]
        return QuietRanks(
            group.active, group.quiet, group.waiting, group.unclear, stand, (), group.silent, lost,
            now - group.still_s,
        )  # fmt: skip

    def _unnamed(self) -> int:
        return max(0, self._group.silent - len(self._group.lost))


def _windows(group: RankGroup) -> dict[int, bytes]:
    """Return the windows of single ranks that a group has."""
    return {
        rank: value
        for of in (group.most, *group.others.values())
        for rank, (_, value) in of.items()
    }
