"""Finds late ranks in large jobs, where rank 0 reads only merged groups of ranks.

A group's histograms give the median of all ranks in each block of steps, and the spread of the
ranks' means in a window.  The judge compares the few ranks with the most own work, whose windows
a group has, with both: a rank is late if its own blocks of steps show it, and if it is so far
above the median that chance would not put any of so many equal ranks there.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from fastprof.report.figures import plural
from fastprof.report.ranks import LateStep, RankRow
from fastprof.report.ranks_blocks import MIN_BLOCKS, HeardRank, run_in_blocks
from fastprof.report.ranks_cause import own_ms, section_of_step, tells
from fastprof.report.ranks_group import RankGroup, RankHeard, quantile_ms
from fastprof.report.ranks_heard import ASKED
from fastprof.report.ranks_judge import FALSE_ALARMS, LATE_SHARE, Lateness, Series, judge_one
from fastprof.report.ranks_live import STRICT, Compared, Judge
from fastprof.report.ranks_live_text import hang_text
from fastprof.report.ranks_now import SILENT_S, JobNow
from fastprof.report.ranks_row import BACKWARD, RankRun, RankSteps
from fastprof.report.ranks_verdict import LatenessTest, Verdict, straggler_of, worth
from fastprof.report.ranks_window import RankWindow
from fastprof.report.rows import UNACCOUNTED
from fastprof.report.student import critical

#: These quantiles of equal ranks are two standard deviations apart.
_LOW, _HIGH = 0.1587, 0.8413
_FREEDOM = 1000
#: A block of steps is judged if this share of the ranks has published it.
_TOLD = 0.5


class GroupJudge(Judge):
    """Like :class:`~fastprof.report.ranks_live.Judge`, for the group of all ranks."""

    def __init__(self, job: str, world_size: int) -> None:
        super().__init__(job, world_size)
        self._group = RankGroup(job, world_size)
        self._named: dict[int, RankHeard] = {}

    def hear_group(self, group: RankGroup, now: float) -> None:
        """Take the group of all heard ranks; ``now``: seconds of any one clock."""
        if (group.job, group.world_size) != (self._group.job, self._group.world_size):
            self.ignored["of another job or rank"] += 1
            return
        self._group = group
        for rank, (_, value) in group.most.items():
            self.hear(rank, value, now)
        self._named = {one.rank: one for one in (*group.standing, *group.lost)}
        for one in self._named.values():
            self._ranks[one.rank] = self._as_heard(one, now)
        kept = {*group.most, *self._named, *self._lates}
        for rank in [rank for rank in self._ranks if rank not in kept]:
            if self._ranks[rank].said:  # it was silent and no longer is
                self._ranks[rank].heard = now
            else:
                del self._ranks[rank]

    @property
    def followed(self) -> list[int]:
        """The late ranks; their windows must be read even while others have more work."""
        return sorted(self._lates)

    def job_now(self, now: float) -> JobNow:
        """Return the state of the job; its rows are late, silent and standing ranks."""
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
        # The place of a standing rank is known, but none of its blocks.
        known = {rank: self._ranks.get(rank) for rank in {*self._group.most, *self._lates}}
        live = [
            number
            for number, rank in sorted(known.items())
            if rank is not None and rank.blocks and now - rank.heard < SILENT_S
        ]
        starts, size = self._starts(*self._signal())
        return live, starts[-1] + size if starts and live else -1

    def _signal(self) -> tuple[str, int]:
        """Return the signal that defines waiting on most ranks, and their number."""
        ranks = {signal: sum(of.values()) for signal, of in self._group.works.items()}
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
        group = self._group
        signal, judged = self._signal()
        starts, size = self._starts(signal, judged)
        if len(starts) < MIN_BLOCKS or judged < 2:
            return None
        usual = {start: quantile_ms(group.blocks[signal][size, start], 0.5) for start in starts}
        step_ms = quantile_ms(group.walls[signal], 0.5)
        works = group.works[signal]
        spread = (quantile_ms(works, _HIGH) - quantile_ms(works, _LOW)) / 2
        base = max(0.0, quantile_ms(works, 0.5) - fmean(usual.values()))
        chance = 1.0 / STRICT / judged
        enough = max(LATE_SHARE * step_ms, spread * critical(1.0 - 2.0 * chance, _FREEDOM))
        runs: list[RankRun] = []
        lates: list[Lateness] = []
        owns: list[Series] = []
        for rank in live:
            run = run_in_blocks(self._ranks[rank], size, starts)
            if run is None or run.steps is None or not tells(run, signal):
                continue
            own = Series(run.steps.numbers, own_ms(run, run.steps, signal))
            late = Series(
                own.numbers,
                [ms - usual[n] - base for n, ms in zip(own.numbers, own.ms, strict=True)],
            )
            one = judge_one(late, step_ms, 1.0 / FALSE_ALARMS)
            if worth(one) < enough:
                one = replace(one, late=False, windows=())
            hung = {step for step, _ in one.hangs}
            runs, lates, owns = [*runs, run], [*lates, one], [*owns, own.without(hung)]
        if not runs:
            return None
        verdict = Verdict(signal=signal, step_ms=step_ms, seen_from_ms=enough)
        middle = _median_run(group, signal, step_ms, usual, size)
        # Add enough copies that the median of them and the other ranks is the median rank.
        for _ in range(len(runs) + 1):
            runs, owns = [*runs, middle], [*owns, Series(starts, list(usual.values()))]
            lates = [*lates, Lateness(0.0, 0.0, 0.0, False, (), (), 0.0, len(starts))]
        if any(worth(one) > 0.0 for one in lates):
            test = LatenessTest(
                signal, False, [fmean(own.ms or [0.0]) for own in owns], lates, owns
            )
            verdict.test, verdict.runs = test, runs
            verdict.straggler = straggler_of(runs, test, step_ms)
        found = dict.fromkeys(verdict.late_ms, verdict)
        hangs = [
            LateStep(run.row.rank, step, ms, section_of_step(run, [middle], signal, step))
            for run, one in zip(runs, lates, strict=True)
            for step, ms in one.hangs
        ]
        return Compared(runs, verdict, found, frozenset(found), hangs)

    def _history(self, runs: Sequence[RankRun]) -> list[RankRun]:
        """Return the runs unchanged: the median rank has only this window."""
        return list(runs)

    def _others(self, late: int, live: Sequence[int]) -> list[int]:
        """Return ranks from all over the job: neighbours of the late rank may share its fault."""
        apart = max(1, self._world // ASKED)
        others = ((late + i * apart) % self._world for i in range(1, ASKED))
        return [rank for rank in dict.fromkeys(others) if rank != late]

    def _quiet(self, now: float) -> tuple[int, int, int, list[HeardRank], float]:
        group = self._group
        stand = [self._ranks[one.rank] for one in group.standing]
        return group.active, group.quiet, group.waiting, stand, now - group.still_s

    def _hangs_now(self, now: float) -> tuple[str, bool]:
        group = self._group
        moves = group.silent + group.quiet < group.active
        stand = group.quiet - group.waiting
        if not group.silent and not stand and (moves or not group.waiting):
            return "", moves
        text = hang_text(
            [self._as_heard(one, now) for one in group.lost], group.silent,
            [self._as_heard(one, now) for one in group.standing], stand,
            plural(group.waiting, "rank") if group.waiting else "", group.waiting,
            0.0 if moves else float(group.still_s), now,
        )  # fmt: skip
        return text, moves

    def _unnamed(self) -> int:
        return max(0, self._group.silent - len(self._group.lost))


def _median_run(
    group: RankGroup, signal: str, step_ms: float, usual: dict[int, float], size: int
) -> RankRun:
    """Return a rank with the median of all ranks in each block of steps and each section."""
    own = list(usual.values())
    wall = [max(step_ms, ms) for ms in own]
    waits = [a - b for a, b in zip(wall, own, strict=True)]
    if signal == "none":
        wall, waits = own, [0.0] * len(own)
    sections: dict[str, list[float]] = {
        name: [quantile_ms(of, 0.5)] * len(own)
        for name, of in group.sections.get(signal, {}).items()
        if name != UNACCOUNTED
    }
    waiting: dict[str, float] = {}
    if signal in ("autograd", "backward", "sections"):
        name = next((name for name in BACKWARD if name in sections), BACKWARD[0])
        name = "barrier" if signal == "sections" else name
        there = sections.get(name, [0.0] * len(own))
        sections[name] = [a + b for a, b in zip(there, waits, strict=True)]
    elif signal == "split":
        waiting[UNACCOUNTED] = fmean(waits)
    rank = -1
    row = RankRow(
        rank=rank, world_size=group.world_size, host=None, path="", steps=len(own), skipped=0,
        step_ms=fmean(wall), p95_ms=None, cv=None, sections=(), waits=(), gpu_utilization=None,
        gpu_compute_ms=None, gpu_communication_ms=None, gpu_waits=None, memory_bytes=None,
        memory_total_bytes=None, setup=(),
    )  # fmt: skip
    steps = RankSteps(
        numbers=array("q", usual),
        wall=array("f", wall),
        sections={name: array("f", of) for name, of in sections.items()},
        communication=array("f", waits) if signal == "split" else None,
        autograd=array("f", waits) if signal == "autograd" else None,
        cpu=None,
        gc=None,
        cpu_wait=None,
    )
    return RankRun(row, steps, waiting)
