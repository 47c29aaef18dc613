"""Finds late ranks while the job runs: judges the windows of all ranks one after the other.

A window is the last ten seconds of steps, or more where steps are long.  Every few seconds
the ranks are compared in it as :mod:`fastprof.report.ranks_verdict` compares whole runs.
A verdict begins when one window says so that would by chance in one of 70,000, or four in a
row that would in one of 2,000; it ends when two in a row say otherwise.  What is said is
said once: when a verdict begins, changes or ends.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fastprof.report.figures import duration
from fastprof.report.ranks import Straggler, named
from fastprof.report.ranks_blocks import MIN_BLOCKS, end_of, run_in_blocks, window_starts
from fastprof.report.ranks_heard import ASKED, HeardRanks
from fastprof.report.ranks_judge import FALSE_ALARMS, groups_in_step
from fastprof.report.ranks_live_amount import functions, may_be_late, mean_late, since
from fastprof.report.ranks_live_text import late_rank, late_text, once_text, ordinal
from fastprof.report.ranks_now import SILENT_S, JobNow, rows_now
from fastprof.report.ranks_row import RankRun
from fastprof.report.ranks_verdict import Verdict, by_steps
from fastprof.report.ranks_window import RankDetail, Request, decode_detail

#: One window in so many of ranks alike is said to have a late rank.
STRICT = 70_000.0
_IN_A_ROW = 4
_MISSES = 2
#: For so long the functions of a late rank are waited for.
_DETAIL_S = 5.0
#: A verdict has changed when the lateness has, by this factor.
_CHANGE = 2.0
#: A single step is reported from this lateness on.
_ONCE_MS = 1000.0
_LINES = 50


@dataclass(slots=True)
class _Late:
    """A verdict that goes on."""

    straggler: Straggler
    since: int
    told: Straggler | None = None
    asked: float = 0.0
    request: Request | None = None
    details: dict[int, RankDetail] = field(default_factory=dict)
    misses: int = 0
    changes: int = 0
    last: int = 0


class Judge(HeardRanks):
    """Reads what ranks publish and says who is late.

    Args:
        job: of whose ranks windows count; others are foreign.
        world_size: number of ranks.
    """

    def __init__(self, job: str, world_size: int) -> None:
        super().__init__(job, world_size)
        self._late: _Late | None = None
        self._suspects: list[int | None] = []
        self._judged_to = -1
        #: Of the last request; what an earlier run asked for has a smaller one.
        self._number = time.time_ns() // 1_000_000
        self._episodes: list[tuple[int, int]] = []
        self._hangs: set[tuple[int, int]] = set()
        #: Windows that were judged, and verdicts that began.
        self.judged = 0
        self.begun = 0
        #: Sentences said so far, the newest last.
        self.lines: list[str] = []

    # -- what comes in ---------------------------------------------------------

    def tell(self, rank: int, data: bytes) -> None:
        """Take what a rank answers to :meth:`request`."""
        late = self._late
        if late is None or late.request is None:
            return
        try:
            detail = decode_detail(data)
        except ValueError:
            self.ignored["damaged, or of another version of fastprof"] += 1
            return
        asked = late.request
        if (detail.job, detail.rank, detail.number) == (self._job, rank, asked.number):
            late.details[rank] = detail

    def request(self) -> Request | None:
        """Return what ranks are asked for now; None: nothing."""
        return None if self._late is None else self._late.request

    # -- what comes out --------------------------------------------------------

    def look(self, now: float) -> list[str]:
        """Judge what has come in; return the sentences that are new."""
        said = [*self._silent(now), *self._standing(now)]
        live, end = self._due(now)
        if end > self._judged_to:
            found = self._compare(live, end)
            if found is not None:
                self._judged_to = end
                self.judged += 1
                said += self._decide(*found, live, end, now)
        said += self._explain(now)
        self.lines = [*self.lines, *said][-_LINES:]
        return said

    @property
    def metrics(self) -> dict[str, float]:
        """The late rank (-1: none), what the others wait for it per step, its part in percent."""
        known = self._late
        late = None if known is None or known.told is None else known.straggler
        return {
            "profile/ranks/late_rank": -1.0 if late is None else float(late.rank),
            "profile/ranks/wait_ms": 0.0 if late is None else late.wait_ms,
            "profile/ranks/cost_percent": 0.0 if late is None else 100.0 * late.late_share,
        }

    def job_now(self, now: float) -> JobNow:
        """Return the ranks as they fare now, those that have ended as they last did."""
        known = self._late
        if known is not None:
            late: Straggler | None = known.told or known.straggler
            verdict = late_text(known.told or known.straggler, known.since, again=False)
        else:
            late, verdict = self._late_now(now)
        hangs, moves = self._hangs_now(now)
        if hangs:
            # While no step ends the last steps say nothing of who is late.
            late = late if moves else None
            verdict = f"{hangs} {verdict}" if late is not None else hangs
        before = sorted({rank for rank, _ in self._episodes})
        if before:
            verdict += f" Late earlier: {named(before)}."
        return JobNow(self._world, rows_now(self._ranks, late, now), late, verdict)

    def _late_now(self, now: float) -> tuple[Straggler | None, str]:
        """Judge the last window on its own, also of ranks that have ended."""
        unknown = "It is not known whether a rank is late."
        ranks = [rank for rank, of in sorted(self._ranks.items()) if of.blocks]
        fresh = [rank for rank in ranks if now - self._ranks[rank].heard < SILENT_S]
        ranks = fresh if len(fresh) > 1 else ranks
        end = min((end_of(self._ranks[rank]) for rank in ranks), default=-1)
        found = self._compare(ranks, end) if len(ranks) > 1 else None
        if found is None:
            return None, unknown
        runs, verdict, strict = found
        if verdict is None:
            return None, "No rank is late."
        late = verdict.straggler
        if late is not None and strict:
            first = since(self._history(runs), late, verdict.signal)
            return late, late_text(late, first, again=False)
        if late is not None or verdict.seen_from_ms is None:
            return None, unknown
        seen = duration(verdict.seen_from_ms)
        return None, f"No rank is late: {seen} per step would have been seen."

    def _due(self, now: float) -> tuple[list[int], int]:
        """Return the ranks to compare, and the step before which they are; -1: no step."""
        live = [
            number
            for number, rank in sorted(self._ranks.items())
            if rank.lives and not rank.window.ended and now - rank.heard < SILENT_S and rank.blocks
        ]
        if len(live) < 2:
            return live, -1
        return live, min(end_of(self._ranks[rank]) for rank in live)

    # -- who is late -----------------------------------------------------------

    def _compare(
        self, live: Sequence[int], end: int
    ) -> tuple[list[RankRun], Verdict | None, bool] | None:
        """Return the ranks in the last window, what was found, and whether one window is enough.

        None: too few blocks have come in for a window.
        """
        size = max(self._ranks[rank].size for rank in live)
        starts = window_starts(self._ranks[live[0]], size, end)
        if len(starts) < MIN_BLOCKS:
            return None
        made = (run_in_blocks(self._ranks[rank], size, starts) for rank in live)
        runs = [run for run in made if run is not None]
        if len(runs) < 2:
            return None
        found = None
        for group in groups_in_step({i: run.row.step_ms or 0.0 for i, run in enumerate(runs)}):
            members = [runs[i] for i in group]
            if not may_be_late(members):
                continue
            verdict, strict = by_steps(members, STRICT), True
            if verdict.straggler is None:
                hangs, strict = verdict.hangs, False
                verdict = by_steps(members, FALSE_ALARMS)
                verdict.hangs = hangs
            if found is None or _late_ms(verdict) > _late_ms(found[0]):
                found = verdict, strict
        return runs, *(found or (None, False))

    def _decide(
        self,
        runs: Sequence[RankRun],
        verdict: Verdict | None,
        strict: bool,
        live: Sequence[int],
        end: int,
        now: float,
    ) -> list[str]:
        said = [] if verdict is None else self._once(verdict, end)
        late = None if verdict is None else verdict.straggler
        self._suspects = [*self._suspects, None if late is None else late.rank][-_IN_A_ROW:]
        sure = late is not None and (strict or self._suspects == [late.rank] * _IN_A_ROW)
        known = self._late
        if known is not None:
            if late is not None and late.rank == known.straggler.rank:
                known.misses, known.last = 0, end
                self._update(known, late, live, now)
                return said
            # A change within the window makes it look like chance.
            if mean_late(runs, known.straggler) >= known.straggler.late_ms / 2:
                known.misses, known.last = 0, end
                return said
            known.misses += 1
            if known.misses < _MISSES:
                return said
            said += self._finish(known)
            self._late = None
        if late is not None and verdict is not None and sure:
            first = since(self._history(runs), late, verdict.signal)
            self.begun += 1
            self._late = known = _Late(late, first, last=end)
            self._ask(known, live, now)
        return said

    def _history(self, runs: Sequence[RankRun]) -> list[RankRun]:
        """Return the same ranks with all blocks that are kept of them."""
        ranks = [self._ranks[run.row.rank] for run in runs]
        size = max(rank.size for rank in ranks)
        starts = sorted({start - start % size for rank in ranks for start in rank.blocks})
        made = (run_in_blocks(rank, size, starts) for rank in ranks)
        return [run for run in made if run is not None]

    def _update(self, known: _Late, late: Straggler, live: Sequence[int], now: float) -> None:
        before, known.straggler = known.told, late
        if before is None or known.request is not None:
            return
        factor = late.late_ms / before.late_ms if before.late_ms else _CHANGE
        changed = late.section != before.section or not 1 / _CHANGE < factor < _CHANGE
        # A window in which it changes is a mixture of both.
        known.changes = known.changes + 1 if changed else 0
        if known.changes > _MISSES:
            known.changes = 0
            self._ask(known, live, now)

    def _ask(self, known: _Late, live: Sequence[int], now: float) -> None:
        self._number += 1
        late = known.straggler.rank
        others = self._others(late, live)
        last = self._judged_to
        known.asked, known.details = now, {}
        rank = self._ranks[late]
        starts = window_starts(rank, rank.size, last)
        first = starts[0] if starts else last
        known.request = Request(self._job, self._number, first, last, (late, *others))

    def _others(self, late: int, live: Sequence[int]) -> list[int]:
        """Return the ranks to which the functions of a late one are compared."""
        return [rank for rank in live if rank != late][: ASKED - 1]

    def _explain(self, now: float) -> list[str]:
        """Say who is late as soon as its functions are known, or have been waited for."""
        known = self._late
        if known is None or known.request is None:
            return []
        if len(known.details) < len(known.request.ranks) and now - known.asked < _DETAIL_S:
            return []
        late = known.straggler
        again = known.told is not None
        known.told = late = replace(late, functions=functions(known.details, late))
        known.request = None
        text = late_text(late, known.since, again)
        if not again:
            text += self._before(late.rank)
        return [text]

    def _finish(self, known: _Late) -> list[str]:
        late = known.told
        if late is None:  # it was over before anything was said
            return []
        self._episodes = [*self._episodes, (late.rank, known.last)][-_LINES:]
        return [f"{late_rank(late)} is not late any more since about step {known.last}."]

    def _before(self, rank: int) -> str:
        times = sum(1 for number, _ in self._episodes if number == rank)
        ranks = sorted({number for number, _ in self._episodes} | {rank})
        text = f" It is late for the {ordinal(times + 1)} time." if times else ""
        if len(ranks) > 1:
            text += f" So far {named(ranks)} have been late in turns."
        return text

    def _once(self, verdict: Verdict, end: int) -> list[str]:
        said = []
        for hang in verdict.hangs:
            rank = self._ranks.get(hang.rank)
            size = 1 if rank is None else rank.size
            if hang.late_ms * size < _ONCE_MS or (hang.rank, hang.step) in self._hangs:
                continue
            self._hangs.add((hang.rank, hang.step))
            said.append(once_text(hang, size))
        self._hangs = {(rank, step) for rank, step in self._hangs if step > end - (1 << 20)}
        return said[:ASKED]


def _late_ms(verdict: Verdict) -> float:
    return 0.0 if verdict.straggler is None else verdict.straggler.late_ms
