"""Finds late ranks while the job runs: judges the windows of all ranks one after the other.

A window is the last ten seconds of steps, or more where steps are long.  Every few seconds
the ranks are compared in it as :mod:`fastprof.report.ranks_verdict` compares whole runs.
A verdict begins when one window says so that would by chance in one of 70,000, or four in a
row that would in one of 2,000; it ends when two in a row say otherwise.  What is said is
said once: when a verdict begins, changes or ends.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from fastprof.names import ascii_name
from fastprof.report.figures import duration, plural
from fastprof.report.ranks import FunctionExcess, RankRow, Straggler, named
from fastprof.report.ranks_blocks import (
    MIN_BLOCKS,
    HeardRank,
    add_blocks,
    end_of,
    run_in_blocks,
    window_starts,
)
from fastprof.report.ranks_cause import function_excess, own_ms, tells
from fastprof.report.ranks_judge import FALSE_ALARMS, LATE_SHARE, groups_in_step
from fastprof.report.ranks_live_text import (
    hang_text,
    late_rank,
    late_text,
    once_text,
    ordinal,
    rank_named,
)
from fastprof.report.ranks_now import SILENT_S, JobNow, rows_now
from fastprof.report.ranks_row import (
    MAX_RANKS,
    Function,
    RankRun,
)
from fastprof.report.ranks_verdict import Verdict, by_steps, waiting_signals
from fastprof.report.ranks_window import (
    RankDetail,
    RankWindow,
    Request,
    decode,
    decode_detail,
)

#: One window in so many of ranks alike is said to have a late rank.
STRICT = 70_000.0
_IN_A_ROW = 4
_MISSES = 2
_LONG_STEPS = 5.0
#: For so long the functions of a late rank are waited for.
_DETAIL_S = 5.0
ASKED = 5
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


class Judge:
    """Reads what ranks publish and says who is late.

    Args:
        job: of whose ranks windows count; others are foreign.
        world_size: number of ranks.
    """

    def __init__(self, job: str, world_size: int) -> None:
        self._job = job
        self._world = min(world_size, MAX_RANKS)
        self._ranks: dict[int, HeardRank] = {}
        self._late: _Late | None = None
        self._suspects: list[int | None] = []
        self._judged_to = -1
        #: Of the last request; what an earlier run asked for has a smaller one.
        self._number = time.time_ns() // 1_000_000
        self._began: float | None = None
        self._stuck: tuple[int, ...] = ()
        self._stuck_at = 0.0
        self._episodes: list[tuple[int, int]] = []
        self._hangs: set[tuple[int, int]] = set()
        #: Values that were no windows of this job's ranks, by why.
        self.ignored: Counter[str] = Counter()
        #: Windows that were judged, and verdicts that began.
        self.judged = 0
        self.begun = 0
        #: Sentences said so far, the newest last.
        self.lines: list[str] = []

    # -- what comes in ---------------------------------------------------------

    def hear(self, rank: int, data: bytes, now: float) -> None:
        """Take what stands in the place of ``rank``; ``now``: seconds of any one clock."""
        try:
            window = decode(data)
        except ValueError:
            self.ignored["damaged, or of another version of fastprof"] += 1
            return
        if window.job != self._job or window.rank != rank or rank >= self._world:
            self.ignored["of another job or rank"] += 1
            return
        self._began = now if self._began is None else self._began
        known = self._ranks.get(rank)
        if known is None:
            known = self._ranks[rank] = HeardRank(window, now, now)
        elif window.beat != known.window.beat:
            if window.steps != known.window.steps or window.phase != known.window.phase:
                known.moved = now
            if window.steps < known.window.steps or not known.lives:  # it has begun again
                known.blocks.clear()
            known.lives = True
            known.window, known.heard = window, now
        else:
            return
        add_blocks(known, window)

    def listen_anew(self, now: float) -> None:
        """Count the silence of ranks from ``now`` on: until now none could be heard."""
        for rank in self._ranks.values():
            rank.heard = rank.moved = now
        self._stuck_at = now

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

    def _hangs_now(self, now: float) -> tuple[str, bool]:
        """Say which ranks are silent or stand, and whether others still end steps."""
        ranks = [r for _, r in sorted(self._ranks.items()) if not r.window.ended and r.window.steps]
        patience = patience_s(ranks)
        silent = [r for r in ranks if now - r.heard >= SILENT_S]
        quiet = [r for r in ranks if now - r.moved >= patience and now - r.heard < SILENT_S]
        moves = len(silent) + len(quiet) < len(ranks)
        stand = [r for r in quiet if not r.window.waits]
        wait = [r.window.rank for r in quiet if r.window.waits]
        if not silent and not stand and (moves or not wait):
            return "", moves
        still = 0.0 if moves else min(now - r.moved for r in ranks)
        return hang_text(silent, stand, wait, still, now), moves

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
            since = _since(self._history(runs), late, verdict.signal)
            return late, late_text(late, since, again=False)
        if late is not None or verdict.seen_from_ms is None:
            return None, unknown
        seen = duration(verdict.seen_from_ms)
        return None, f"No rank is late: {seen} per step would have been seen."

    @property
    def windows(self) -> dict[int, RankWindow]:
        """The last window of each rank."""
        return {number: rank.window for number, rank in sorted(self._ranks.items())}

    @property
    def ranks(self) -> Mapping[int, HeardRank]:
        """What is known of each rank."""
        return self._ranks

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

    # -- ranks of which nothing is heard, steps that do not end ----------------

    def _silent(self, now: float) -> list[str]:
        said = []
        for _, rank in sorted(self._ranks.items()):
            silent = rank.lives and now - rank.heard >= SILENT_S and not rank.window.ended
            if silent and not rank.said:
                place = f" in {ascii_name(rank.window.place)}" if rank.window.place else ""
                said.append(
                    f"{rank_named(rank.window)} has been silent for "
                    f"{duration((now - rank.heard) * 1000)}: it was last seen{place} after step "
                    f"{rank.window.steps}."
                )
            elif rank.said and not silent:
                said.append(f"{rank_named(rank.window)} is heard again.")
            rank.said = silent
        return said[:ASKED]

    def _standing(self, now: float) -> list[str]:
        """Say who stands still while others wait for it."""
        ranks, quiet, waiting, culprits, moved_at = self._quiet(now)
        stands = quiet == ranks >= 2 and waiting >= max(1, ranks // 2)
        if not stands:
            moved = bool(self._stuck) and moved_at > self._stuck_at
            self._stuck = () if moved else self._stuck
            return ["Steps end again."] if moved else []
        found = tuple(sorted(r.window.rank for r in culprits)) or (-1,)
        if found == self._stuck:
            return []
        self._stuck, self._stuck_at = found, now
        since = duration((now - moved_at) * 1000)
        if not culprits:
            return [f"No step has ended for {since}: each rank waits for the others."]
        where = "; ".join(
            f"{rank_named(r.window)} stands in {ascii_name(r.window.place) or 'no section'}"
            for r in culprits[:ASKED]
        )
        more = quiet - waiting - min(len(culprits), ASKED)
        where += f"; {plural(more, 'more rank')} elsewhere" if more > 0 else ""
        others = "the other waits" if waiting == 1 else f"{waiting} others wait"
        return [f"No step has ended for {since}: {where}, and {others}."]

    def _quiet(self, now: float) -> tuple[int, int, int, list[HeardRank], float]:
        """Return how many ranks train, are quiet, and wait; who stands; when the last one moved."""
        ranks = [
            r for r in self._ranks.values() if r.lives and not r.window.ended and r.window.steps
        ]
        patience = patience_s(ranks)
        quiet = [r for r in ranks if now - r.moved >= patience and now - r.heard < SILENT_S]
        stand = [r for r in quiet if not r.window.waits]
        moved_at = max((r.moved for r in ranks), default=0.0)
        return len(ranks), len(quiet), len(quiet) - len(stand), stand, moved_at

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
            if not _may_be_late(members):
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
            if _mean_late(runs, known.straggler) >= known.straggler.late_ms / 2:
                known.misses, known.last = 0, end
                return said
            known.misses += 1
            if known.misses < _MISSES:
                return said
            said += self._finish(known)
            self._late = None
        if late is not None and verdict is not None and sure:
            since = _since(self._history(runs), late, verdict.signal)
            self.begun += 1
            self._late = known = _Late(late, since, last=end)
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
        functions = _functions(known.details, late)
        known.told = late = replace(late, functions=functions)
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


# ---- judging


def patience_s(ranks: Collection[HeardRank]) -> float:
    """Return the seconds without a step after which a rank stands still."""
    rows = [row["wall"] for rank in ranks for row in list(rank.blocks.values())[-2:]]
    return max(SILENT_S, _LONG_STEPS * (median(rows) / 1e6 if rows else 0.0))


def _may_be_late(runs: Sequence[RankRun]) -> bool:
    """Whether a rank is so far above the others that tests are worth their time."""
    if len(runs) < 2:
        return False
    step_ms = median([run.row.step_ms or 0.0 for run in runs])
    for signal in (*waiting_signals(runs), "cpu"):
        if signal == "cpu" and any(run.steps is None or run.steps.cpu is None for run in runs):
            continue
        means = sorted(fmean(own_ms(run, run.steps, signal)) for run in runs if run.steps)
        if means[-1] - median(means[:-1]) >= LATE_SHARE * step_ms / 2:
            return True
    return False


def _mean_late(runs: Sequence[RankRun], late: Straggler) -> float:
    """Return by how much a rank is later than the others in the mean of these steps."""
    signal = late.signal
    if not any(run.row.rank == late.rank and tells(run, signal) for run in runs):
        signal = waiting_signals(runs)[0]
    means = {
        run.row.rank: fmean(own_ms(run, run.steps, signal))
        for run in runs
        if run.steps is not None and tells(run, signal)
    }
    here = means.pop(late.rank, None)
    return here - median(means.values()) if here is not None and means else 0.0


def _late_ms(verdict: Verdict) -> float:
    return 0.0 if verdict.straggler is None else verdict.straggler.late_ms


def _since(runs: Sequence[RankRun], late: Straggler, signal: str) -> int:
    """Return the step from which on the rank has been late."""
    by_rank = {run.row.rank: run for run in runs}
    here = by_rank[late.rank].steps
    if here is None:
        return 0
    if not tells(by_rank[late.rank], signal):
        return here.numbers[0]
    own = dict(zip(here.numbers, own_ms(by_rank[late.rank], here, signal), strict=True))
    rest = [
        dict(zip(run.steps.numbers, own_ms(run, run.steps, signal), strict=True))
        for run in runs
        if run.row.rank != late.rank and run.steps is not None and tells(run, signal)
    ]
    if not rest:
        return here.numbers[0]
    best, total, found = 0.0, 0.0, here.numbers[-1]
    for number in reversed(here.numbers):
        there = [values[number] for values in rest if number in values]
        if not there:
            continue
        total += own[number] - median(there) - late.late_ms / 2
        if total > best:
            best, found = total, number
    return found


def _functions(details: Mapping[int, RankDetail], late: Straggler) -> tuple[FunctionExcess, ...]:
    here = details.get(late.rank)
    others = [detail for rank, detail in details.items() if rank != late.rank]
    if here is None or not others:
        return ()
    return function_excess(_program(here), [_program(detail) for detail in others], late.late_ms)


def _program(detail: RankDetail) -> RankRun:
    row = RankRow(
        detail.rank, None, None, "", 0, 0, None, None, None, (), (), None, None, None, None, None,
        None, (),
    )  # fmt: skip
    program = {
        (name, file, line): Function(us / 1000, {of: ms / 1000 for of, ms in called.items()})
        for name, file, line, us, called in detail.functions
    }
    return RankRun(row, program=program)
