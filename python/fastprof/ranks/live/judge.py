"""Finds late ranks while the job runs: judges the windows of all ranks one after the other.

A window is the last ten seconds of steps, or more if steps are long.  Every few seconds
the judge compares the ranks in it as :mod:`fastprof.ranks.verdict` compares whole runs.
A verdict begins after one window that chance produces once in 70,000, or after four in a
row that chance produces once in 2,000; it ends after two in a row without the delay.  The
judge reports a verdict once: when it begins, changes or ends.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fastprof.ranks.blocks import MIN_BLOCKS, end_of, run_in_blocks, window_starts
from fastprof.ranks.judge import FALSE_ALARMS, groups_in_step, out_of_step
from fastprof.ranks.live.amount import Begin, begin_of, functions, may_be_late, mean_late
from fastprof.ranks.live.between import BetweenNow
from fastprof.ranks.live.compared import STRICT, Compared
from fastprof.ranks.live.hang import ASKED
from fastprof.ranks.live.heard import HeardRanks
from fastprof.ranks.live.now import SILENT_S, JobNow, rows_now
from fastprof.ranks.live.stalls import Stalls, stalls_text
from fastprof.ranks.live.text import late_rank, late_text, may_be_late_text, ordinal
from fastprof.ranks.live.window import RankDetail, Request, decode_detail
from fastprof.ranks.model import LateStep, Straggler, named
from fastprof.ranks.row import RankRun
from fastprof.ranks.verdict import ALSO_LATE, Verdict, by_steps, why_blind
from fastprof.report.figures import duration

_IN_A_ROW = 4
_MISSES = 2
#: How long to wait for the functions of a late rank.
_DETAIL_S = 5.0
#: A verdict has changed if the lateness has changed by this factor.
_CHANGE = 2.0
_LINES = 50
#: A minute is judged after every so many windows, in blocks that are so many times as long; by
#: chance, one in this many minutes of equal ranks has a late rank.
_MINUTE_EVERY = 4
_LONGER = 4
MINUTE_S = 60.0
MINUTE_BLOCKS = 12
MINUTE_ALARMS = 10_000.0
#: A delay that only a minute shows is over after so many windows in a row without it.
_SLOW_MISSES = 6
_EVER = 1 << 62


@dataclass(slots=True)
class _Late:
    """An open verdict."""

    straggler: Straggler
    begin: Begin
    told: Straggler | None = None
    asked: float = 0.0
    request: Request | None = None
    details: dict[int, RankDetail] = field(default_factory=dict)
    misses: int = 0
    changes: int = 0
    last: int = 0
    #: Ranks that were named with it, and have been late since.
    also: frozenset[int] = frozenset()
    #: Only the last minute shows it, not yet a single window.
    slow: bool = False


class Judge(HeardRanks):
    """Reads the windows of ranks and reports late ranks.

    Args:
        job: the job; windows of other jobs are ignored.
        world_size: number of ranks.
    """

    def __init__(self, job: str, world_size: int) -> None:
        super().__init__(job, world_size)
        #: Open verdicts, by rank.
        self._lates: dict[int, _Late] = {}
        self._suspects: list[frozenset[int]] = []
        self._judged_to = -1
        #: Number of the last request; requests of an earlier run have smaller numbers.
        self._number = time.time_ns() // 1_000_000
        self._between = BetweenNow()
        #: Past delays, with their first and last steps.
        self._episodes: list[tuple[Straggler, int, int]] = []
        self._stalls = Stalls()
        #: Number of judged windows, and of verdicts that began.
        self.judged = 0
        self.begun = 0
        #: Sentences reported so far, the newest last.
        self.lines: list[str] = []

    # -- input -----------------------------------------------------------------

    def tell(self, rank: int, data: bytes) -> None:
        """Take a rank's answer to :meth:`request`."""
        asked = self.request()
        if asked is None:
            return
        try:
            detail = decode_detail(data)
        except ValueError:
            self.ignored["damaged, or of another version of fastprof"] += 1
            return
        if (detail.job, detail.rank, detail.number) != (self._job, rank, asked.number):
            return
        late = self._asked()
        if late is not None:
            late.details[rank] = detail
        elif rank in asked.ranks:
            self._between.tell(detail)

    def request(self) -> Request | None:
        """Return the current request to ranks; None: no request."""
        late = self._asked()
        return self._between.request if late is None else late.request

    def _asked(self) -> _Late | None:
        """Return the verdict whose functions were requested, at most one."""
        return next((late for late in self._lates.values() if late.request is not None), None)

    # -- output ----------------------------------------------------------------

    def look(self, now: float) -> list[str]:
        """Judge the windows that have arrived; return the new sentences."""
        said = [*self._silent(now), *self._standing(now)]
        live, end = self._due(now)
        if end > self._judged_to:
            found = self._compare(live, end)
            if found is not None:
                self._judged_to = end
                self.judged += 1
                said += self._decide(found, live, end, now)
        said += [*self._explain(now), *self._between.explain(now)]
        self.lines = [*self.lines, *said][-_LINES:]
        return said

    @property
    def metrics(self) -> dict[str, float]:
        """The late rank (-1: none), the others' wait for it per step, the delay in % of a step.

        A rank that works between its steps while the others wait counts as late.
        """
        waits = [
            (late.wait_ms, late.late_share, late.rank)
            for late in (known.straggler for known in self._lates.values() if known.told)
        ]
        work = self._between.work
        if work is not None:
            waits.append((work.wait_ms, work.share, work.rank))
        wait_ms, share, rank = max(waits, default=(0.0, 0.0, -1))
        return {
            "profile/ranks/late_rank": float(rank),
            "profile/ranks/wait_ms": wait_ms,
            "profile/ranks/cost_percent": 100.0 * share,
        }

    def job_now(self, now: float) -> JobNow:
        """Return the current state of the ranks; for ended ranks, their last state."""
        known = sorted(self._lates.values(), key=_order)
        if known:
            first = known[0].told or known[0].straggler
            also = {*first.also, *(other.straggler.rank for other in known[1:])}
            first = replace(first, also=tuple(sorted(also)))
            late: Straggler | None = first
            seen: Straggler | None = first
            verdict = late_text(first, known[0].begin, again=False)
        else:
            late, seen, verdict = self._late_now(now)
        hangs, moves = self._quiet(now, once=True).text(now)
        if hangs:
            # While no step ends, the last steps do not show who is late.
            late = late if moves else None
            verdict = f"{hangs} {verdict}" if late is not None else hangs
        before = sorted({late.rank for late, *_ in self._episodes})
        if before:
            verdict += f" Late earlier: {named(before)}."
        left_out = seen is not None and seen.without_cpu_wait
        rows = rows_now(self._ranks, late, seen, now)
        return JobNow(self._world, rows, late, verdict, own_without_waits=left_out)

    def _late_now(self, now: float) -> tuple[Straggler | None, Straggler | None, str]:
        """Judge the last window alone, including ranks that have ended.

        Returns:
            the rank that is late; the rank that is or may be; the verdict.
        """
        ranks = [rank for rank, of in sorted(self._ranks.items()) if of.blocks]
        fresh = [rank for rank in ranks if now - self._ranks[rank].heard < SILENT_S]
        ranks = fresh if len(fresh) > 1 else ranks
        end = min((end_of(self._ranks[rank]) for rank in ranks), default=-1)
        found = self._compare(ranks, end) if len(ranks) > 1 else None
        if found is None:
            few = "too few steps to compare, or ranks whose steps have different paces"
            return None, None, f"It is not known whether a rank is late: {few}."
        verdict = found.verdict
        work = self._between.text(found.runs)
        waits = f" {work}" if work else ""
        if found.apart:
            waits += f" Not compared, because their steps have another pace: {named(found.apart)}."
        nobody = f"No rank is late{' in its steps' if work else ''}"
        if found.hangs:
            nobody = f"{stalls_text(found)} No rank is late in the other steps"
        sure = next((rank for rank in found.late if rank in found.sure), None)
        if sure is not None:
            late, begin = self._since_its_begin(found, sure)
            return late, late, late_text(late, begin, again=False)
        maybe = None if verdict is None else verdict.straggler
        if maybe is not None:
            return None, maybe, f"{may_be_late_text(maybe)}{waits}"
        blind = why_blind(found.runs)
        if blind:
            return None, None, f"{blind}{waits}"
        if verdict is None:
            return None, None, f"{nobody}.{waits}"
        if verdict.seen_from_ms is None:
            return None, None, f"{verdict.why_not}{waits}"
        seen = duration(verdict.seen_from_ms)
        return None, None, f"{nobody}: {seen} per step would have been seen.{waits}"

    def _due(self, now: float) -> tuple[list[int], int]:
        """Return the ranks to compare, and the step before which to compare them; -1: no step."""
        live = [
            number
            for number, rank in sorted(self._ranks.items())
            if rank.lives and not rank.window.ended and now - rank.heard < SILENT_S and rank.blocks
        ]
        if len(live) < 2:
            return live, -1
        return live, min(end_of(self._ranks[rank]) for rank in live)

    # -- who is late -----------------------------------------------------------

    def _compare(self, live: Sequence[int], end: int) -> Compared | None:
        """Compare ranks in the window before step ``end``; None: too few blocks have arrived."""
        size = max(self._ranks[rank].size for rank in live)
        starts = window_starts(self._ranks[live[0]], size, end)
        return self._compare_in(live, size, starts, STRICT)

    def _compare_minute(self, live: Sequence[int], end: int) -> Compared | None:
        """Compare ranks in the last minute before step ``end``, in longer blocks of steps.

        It shows a delay that is small compared with the noise of a window, and one in few steps.
        """
        size = _LONGER * max(self._ranks[rank].size for rank in live)
        over = max((last for *_, last in self._episodes), default=0)
        starts = window_starts(self._ranks[live[0]], size, end, MINUTE_S)
        starts = [start for start in starts if start >= over]
        if len(starts) < MINUTE_BLOCKS:
            return None
        return self._compare_in(live, size, starts, MINUTE_ALARMS)

    def _compare_in(
        self, live: Sequence[int], size: int, starts: Sequence[int], strict: float
    ) -> Compared | None:
        """Compare ranks in some blocks of steps; ``strict``: odds of a false alarm in a test."""
        if len(starts) < MIN_BLOCKS:
            return None
        made = (run_in_blocks(self._ranks[rank], size, starts) for rank in live)
        runs = [run for run in made if run is not None]
        counts = [self._ranks[run.row.rank].window.steps for run in runs]
        apart = out_of_step(counts, [run.row.step_ms or 0.0 for run in runs]) if runs else ()
        others = [run.row.rank for i, run in enumerate(runs) if i in apart]
        runs = [run for i, run in enumerate(runs) if i not in apart]
        if len(runs) < 2:
            return None
        found: list[Verdict] = []
        hangs: list[LateStep] = []
        sure: set[int] = set()
        for group in groups_in_step({i: run.row.step_ms or 0.0 for i, run in enumerate(runs)}):
            members = [runs[i] for i in group]
            if not may_be_late(members):
                continue
            verdict = by_steps(members, strict)
            hangs += verdict.hangs
            sure |= verdict.late_ms.keys()
            if verdict.late_ms:
                found.append(verdict)
            # With a rank that is certainly late, others may be less late.
            if may_be_late([run for run in members if run.row.rank not in verdict.late_ms]):
                found.append(by_steps(members, FALSE_ALARMS))
        late = {
            rank: (ms, verdict)
            for verdict in reversed(found)
            for rank, ms in verdict.late_ms.items()
        }
        ordered = {rank: late[rank][1] for rank in sorted(late, key=lambda rank: -late[rank][0])}
        first = next(iter(ordered.values()), found[0] if found else None)
        return Compared(runs, first, ordered, frozenset(sure), hangs, size, others)

    def _decide(self, found: Compared, live: Sequence[int], end: int, now: float) -> list[str]:
        said = self._once(found)
        self._suspects = [*self._suspects, frozenset(found.late)][-_IN_A_ROW:]
        for rank, known in list(self._lates.items()):
            known.also &= {other for other in known.also if _is_beside(found.runs, known, other)}
            late = (
                found.late[rank].straggler_of(rank, known.begin.step)
                if rank in found.late
                else None
            )
            # If only a minute shows the delay, a window shows it too large or too small.
            if late is not None and known.slow and rank in found.sure:
                known.slow = late.late_ms < _CHANGE * known.straggler.late_ms
            if late is not None and not known.slow:
                known.misses, known.last = 0, end
                self._update(known, late, live, now)
                continue
            ms = mean_late(found.runs, rank, known.straggler.signal)
            if ms is None:  # it sends no heartbeat, or has ended
                continue
            # A change within the window makes the delay look like chance.
            if ms >= known.straggler.late_ms / 2:
                known.misses, known.last = 0, end
                continue
            known.misses += 1
            slow = known.slow or _cannot_tell(found, known.straggler.late_ms)
            if known.misses >= (_SLOW_MISSES if slow else _MISSES):
                said += self._finish(known)
                del self._lates[rank]
        self._begin(found, live, end, now)
        if self.judged % _MINUTE_EVERY == 0 and self.request() is None:
            self._begin_slow(found, live, end, now)
        work = self._between.look(found.runs)
        if work is not None and self.request() is None:
            self._number += 1
            request = Request(self._job, self._number, 0, end, (work.rank,), work.phase)
            self._between.ask(work, request, now)
        return said

    def _begin(self, found: Compared, live: Sequence[int], end: int, now: float) -> None:
        """Begin a verdict on the latest rank that has none, if any."""
        always: frozenset[int] = frozenset()
        if len(self._suspects) == _IN_A_ROW:
            always = frozenset.intersection(*self._suspects)
        told = self._lates.keys() | {rank for of in self._lates.values() for rank in of.also}
        new = [rank for rank in found.late if rank in found.sure | always and rank not in told]
        if not new or self.request() is not None or len(self._lates) >= ASKED:
            return
        late = found.late[new[0]].straggler_of(new[0])
        self._open(_Late(late, Begin(0), last=end), found, live, now)

    def _begin_slow(self, found: Compared, live: Sequence[int], end: int, now: float) -> None:
        """Begin a verdict on the rank that was latest in the last minute, if it still is late."""
        minute = self._compare_minute(live, end)
        if minute is None:
            return
        for rank in minute.late:
            late = minute.late[rank].straggler_of(rank)
            ms = mean_late(found.runs, rank, late.signal)
            if rank not in minute.sure or late.period is not None:
                continue  # it may be over
            if rank in self._lates or ms is None or ms < late.late_ms / 2:
                continue
            if len(self._lates) < ASKED:
                self._open(_Late(late, Begin(0), last=end, slow=True), minute, live, now)
            return

    def _open(self, known: _Late, found: Compared, live: Sequence[int], now: float) -> None:
        late = known.straggler
        known.straggler, known.begin = self._since_its_begin(found, late.rank)
        self.begun += 1
        self._lates[late.rank] = known
        self._ask(known, live, now)

    def _since_its_begin(self, found: Compared, rank: int) -> tuple[Straggler, Begin]:
        """Return a rank's delay without the steps before it began, and since when it is late."""
        verdict = found.late[rank]
        late = verdict.straggler_of(rank)
        begin = begin_of(self._history(found.runs), late, verdict.signal)
        return verdict.straggler_of(rank, begin.step), begin

    def _history(self, runs: Sequence[RankRun]) -> list[RankRun]:
        """Return the same ranks with all their kept blocks."""
        ranks = [self._ranks[run.row.rank] for run in runs]
        size = max(rank.size for rank in ranks)
        starts = sorted({start - start % size for rank in ranks for start in rank.blocks})
        made = (run_in_blocks(rank, size, starts) for rank in ranks)
        return [run for run in made if run is not None]

    def _update(self, known: _Late, late: Straggler, live: Sequence[int], now: float) -> None:
        before, known.straggler = known.told, late
        if before is None:
            return
        factor = late.late_ms / before.late_ms if before.late_ms else _CHANGE
        changed = late.section != before.section or not 1 / _CHANGE < factor < _CHANGE
        # A window in which it changes mixes both.
        known.changes = known.changes + 1 if changed else 0
        if known.changes > _MISSES and self.request() is None:
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
        first = max(starts[0], known.begin.step) if starts else last
        known.request = Request(self._job, self._number, first, last, (late, *others))

    def _others(self, late: int, live: Sequence[int]) -> list[int]:
        """Return the ranks whose functions are compared with those of a late rank."""
        return [rank for rank in live if rank != late][: ASKED - 1]

    def _explain(self, now: float) -> list[str]:
        """Return the sentence on a late rank once its functions are known, or the wait is over."""
        known = self._asked()
        if known is None or known.request is None:
            return []
        if len(known.details) < len(known.request.ranks) and now - known.asked < _DETAIL_S:
            return []
        late = known.straggler
        again = known.told is not None
        known.told = late = replace(late, functions=functions(known.details, late))
        known.request, known.also = None, frozenset(late.also)
        text = late_text(late, known.begin, again)
        if not again:
            text += self._before(late.rank)
        return [text]

    def _finish(self, known: _Late) -> list[str]:
        late = known.told
        if late is None:  # it was over before it was reported
            return []
        self._episodes = [*self._episodes, (late, known.begin.step, known.last)][-_LINES:]
        return [f"{late_rank(late)} is not late any more since about step {known.last}."]

    def _before(self, rank: int) -> str:
        times = sum(1 for late, *_ in self._episodes if late.rank == rank)
        ranks = sorted({late.rank for late, *_ in self._episodes} | {rank})
        text = f" It is late for the {ordinal(times + 1)} time." if times else ""
        if len(ranks) > 1:
            text += f" So far {named(ranks)} have been late in turns."
        return text

    def _once(self, found: Compared) -> list[str]:
        newest = max(run.steps.numbers[-1] for run in found.runs if run.steps is not None)
        return self._stalls.say(found, newest, lambda hang: self._belongs(hang, found.size))

    def _belongs(self, hang: LateStep, size: int) -> bool:
        """Return whether a block is part of a delay that has a verdict, or had one."""
        delays = [(late.straggler, late.begin.step, _EVER) for late in self._lates.values()]
        delays += self._episodes
        return any(
            late.rank == hang.rank
            and first - size <= hang.step < last + size
            and hang.late_ms < _CHANGE * late.late_ms
            for late, first, last in delays
        )


def _order(known: _Late) -> tuple[bool, float]:
    """Sort key: reported verdicts first, the latest rank first among them."""
    return known.told is None, -(known.told or known.straggler).late_ms


def _cannot_tell(found: Compared, late_ms: float) -> bool:
    """Return whether a delay would not have been seen in this window, because of its noise."""
    verdict = found.verdict
    if verdict is None or verdict.straggler is not None:
        return False
    return verdict.seen_from_ms is None or verdict.seen_from_ms > late_ms


def _is_beside(runs: Sequence[RankRun], known: _Late, rank: int) -> bool:
    """Return whether a rank that was named with a late one is still similarly late."""
    late = known.straggler
    ms = mean_late(runs, rank, late.signal)
    return ms is None or ALSO_LATE / 2 * late.late_ms <= ms < _CHANGE * late.late_ms
