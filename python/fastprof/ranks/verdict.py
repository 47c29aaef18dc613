"""Finds the late ranks in a group of ranks that wait for each other, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from fastprof.ranks.cause import (
    NOWHERE,
    begin,
    function_excess,
    most_of,
    own_ms,
    section_of_step,
    sections_of,
)
from fastprof.ranks.judge import FALSE_ALARMS, Lateness, Series, lateness
from fastprof.ranks.model import SELDOM, HungRank, LatePeriod, LateStep, RankRow, Straggler
from fastprof.ranks.row import RankRun
from fastprof.report.figures import duration

#: Ranks that are late by at least this share of the latest rank's delay are named with it.
ALSO_LATE = 0.5
#: A test that cannot detect a delay of this share of the step does not clear the ranks.
_BLIND = 0.1
#: Being last in turns is reported from this share of the step on.
_TURNS = 0.1
#: Signals for which work in C++ in backward looks like waiting.
ENGINE = ("autograd", "backward")
_EVER = 1 << 62
#: The verdict says that waits for a CPU are left out if they are this share of either side's work,
#: or if the difference between the ranks' waits is this share of the delay.
_NOTEWORTHY = 0.1
_DIFFERS = 0.1
#: A shorter wait is none.
_LEAST_WAIT_MS = 0.001
#: A delay is mostly waiting for a CPU if it is this many times as long as one without these waits.
_MOSTLY = 2.0
#: Fewest steps, or blocks of steps, whose mean is the delay since a step.
_FEW = 3
#: Number of kept hangs, the longest ones.
_MOST_HANGS = 50


@dataclass(slots=True)
class Verdict:
    """The result for one group of ranks that wait for each other."""

    signal: str = "none"
    #: Own work leaves out waiting for a CPU.
    plain: bool = False
    #: Own work per step, in the order of the group.
    works: list[float] = field(default_factory=list)
    straggler: Straggler | None = None
    seen_from_ms: float | None = None
    why_not: str = ""
    periods: list[LatePeriod] = field(default_factory=list)
    #: The longest ones, and the sums of all.
    hangs: list[LateStep] = field(default_factory=list)
    hung: list[HungRank] = field(default_factory=list)
    step_ms: float = 0.0
    #: The test that found it, and the ranks in its order.
    test: LatenessTest | None = None
    runs: Sequence[RankRun] = ()
    #: Lateness in each step, by rank.
    lateness: Mapping[int, Series] = field(default_factory=dict)

    @property
    def late_ms(self) -> dict[int, float]:
        """Mean delay per step of each late rank over all steps, the latest first."""
        found = [] if self.test is None else zip(self.runs, self.test.late, strict=True)
        late = {run.row.rank: worth(one) for run, one in found if worth(one) > 0.0}
        return dict(sorted(late.items(), key=lambda row: -row[1]))

    def straggler_of(self, rank: int, since: int = 0) -> Straggler:
        """Return one of :attr:`late_ms` with all known details of its delay since a step."""
        late = self.straggler
        if late is not None and late.rank == rank and not since:
            return late
        assert self.test is not None
        at = next(i for i, run in enumerate(self.runs) if run.row.rank == rank)
        return straggler_of(self.runs, self.test, self.step_ms, at, since)


def waiting_signals(runs: Sequence[RankRun]) -> list[str]:
    """Return the signals for waiting that all of these ranks have."""
    waits = [dict(run.row.waits) for run in runs]
    steps = [run.steps for run in runs if run.steps is not None]
    # GPUs that have run collectives, but now run none, show no wait.
    idle = all(s.gpu_wait is not None and not any(s.gpu_wait) for s in steps) and bool(steps)
    if all("gpu" in found for found in waits) and not idle:
        return ["gpu"]
    found = []
    # If functions were not recorded, the whole of backward counts as waiting.
    if all(s.autograd is not None for s in steps) and any(any(s.autograd or ()) for s in steps):
        found.append("autograd")
    elif all("backward" in of for of in waits):
        found.append("backward")
    if any("split" in of or "sections" in of for of in waits):
        found.append("split" if any("split" in of for of in waits) else "sections")
    elif not found:
        found.append("none")
    return found


def why_blind(runs: Sequence[RankRun]) -> str:
    """Return why a late rank may go unseen among ranks with equally long steps; '': it does not."""
    signal = waiting_signals(runs)[0]
    if signal == "none":
        return (
            "Who is late is not known: no wait of a rank for others was recorded, and the steps "
            "of ranks that wait for each other are equally long."
        )
    if signal != "gpu" and any(run.cuda for run in runs):
        return (
            "Who is late is not known: ranks may wait for each other where the host waits for its "
            "GPU, and that is not recorded."
        )
    return ""


def by_steps(runs: Sequence[RankRun], alarms: float = FALSE_ALARMS) -> Verdict:
    """Judge ranks step by step, with each signal separately.

    ``alarms``: by chance, each test finds a late rank in one of this many jobs of equal ranks.
    """
    # A hang makes the mean step longer.
    step_ms = median([median(run.steps.wall) for run in runs if run.steps is not None])
    signals = waiting_signals(runs)
    tests = [
        _test(runs, signal, plain, step_ms, alarms) for plain in (True, False) for signal in signals
    ]
    tests = [test for test in tests if test.late]
    found = [test for test in tests if test.worth > 0.0]
    if not found and signals[0] in ENGINE and not any(run.cuda for run in runs):
        # Work in C++ in backward looks like waiting, except for its CPU time. A host that waits for
        # a GPU uses a CPU as well.
        found = _by_cpu(runs, tests[0], step_ms, alarms)
    test = max(found, key=lambda t: t.worth, default=tests[0])
    # Waiting for a CPU is most of the noise of a busy machine: prefer a test without it, unless it
    # is most of a delay.
    plain = max((t for t in found if t.plain), key=lambda t: t.worth, default=test)
    if _MOSTLY * plain.worth > test.worth:
        test = plain
    late, signal = test.late, test.signal
    verdict = Verdict(signal=signal, plain=test.plain, step_ms=step_ms, works=test.works)
    verdict.lateness = {run.row.rank: series for run, series in zip(runs, test.steps, strict=True)}
    whole = next(t for t in reversed(tests) if not t.plain and (t.signal == signal or found))
    hangs = [(ms, step, run) for run, one in zip(runs, whole.late, strict=True)
             for step, ms in one.hangs]  # fmt: skip
    hangs.sort(key=lambda hang: -hang[0])

    def late_step(ms: float, step: int, run: RankRun) -> LateStep:
        others = [other for other in runs if other is not run]
        section = section_of_step(run, others, whole.signal, step)
        return LateStep(run.row.rank, step, ms, section)

    verdict.hangs = [late_step(*hang) for hang in hangs[:_MOST_HANGS]]
    for run, one in zip(runs, whole.late, strict=True):
        if one.hangs and run.steps is not None:
            step, ms = max(one.hangs, key=lambda hang: hang[1])
            verdict.hung.append(
                HungRank(
                    run.row.rank, len(one.hangs), len(run.steps.numbers),
                    sum(ms for _, ms in one.hangs), late_step(ms, step, run),
                )
            )  # fmt: skip
    if found:
        verdict.periods = [
            LatePeriod(run.row.rank, w.first, w.last, w.late_ms)
            for run, one in zip(runs, late, strict=True)
            if not one.late
            for w in one.windows
        ]
        verdict.test, verdict.runs = test, runs
        verdict.straggler = straggler_of(runs, test, step_ms)
        return verdict
    _nobody(verdict, runs, [t for t in tests if t.signal == signal], step_ms)
    return verdict


@dataclass(frozen=True, slots=True)
class LatenessTest:
    """The lateness by one signal; ``plain``: without waiting for a CPU.  Empty: unknown."""

    signal: str
    plain: bool
    works: list[float] = field(default_factory=list)
    late: list[Lateness] = field(default_factory=list)
    owns: list[Series] = field(default_factory=list)
    spread_ms: float = 0.0
    #: Lateness of each rank, step by step.
    steps: list[Series] = field(default_factory=list)

    @property
    def worth(self) -> float:
        """The delay per step of the latest rank against the others; 0: none is late."""
        return max(worth(one) for one in self.late)

    @property
    def seen_from_ms(self) -> float:
        """The smallest delay per step that the test detects."""
        return max(one.seen_from_ms for one in self.late)


def _test(
    runs: Sequence[RankRun], signal: str, plain: bool, step_ms: float, alarms: float
) -> LatenessTest:
    if plain and any(run.steps is None or run.steps.cpu_wait is None for run in runs):
        return LatenessTest(signal, plain)
    if plain and signal == "gpu":  # while a host waits for a CPU, its GPU may work
        return LatenessTest(signal, plain)
    owns = [
        Series(run.steps.numbers, own_ms(run, run.steps, signal, plain=plain))
        for run in runs
        if run.steps is not None
    ]
    late, spread, steps = lateness(owns, step_ms, alarms)
    hung = {step for one in late for step, _ in one.hangs}
    if hung:  # reported separately; one of 5 s would dominate the mean of 100 steps
        owns = [own.without(hung) for own in owns]
    works = [fmean(own.ms or [0.0]) for own in owns]
    return LatenessTest(signal, plain, works, late, owns, spread, steps)


def _by_cpu(
    runs: Sequence[RankRun], other: LatenessTest, step_ms: float, alarms: float
) -> list[LatenessTest]:
    if any(run.steps is None or run.steps.cpu is None for run in runs):
        return []
    test = _test(runs, "cpu", False, step_ms, alarms)
    latest = max(range(len(runs)), key=lambda i: worth(test.late[i]))
    one = test.late[latest]
    # A rank that computes more and does less otherwise is not late.
    if not one.late or other.late[latest].late_ms < -one.late_ms / 2:
        return []
    return [test]


def _nobody(
    verdict: Verdict, runs: Sequence[RankRun], tests: Sequence[LatenessTest], step_ms: float
) -> None:
    """Fill in that no rank is late, or that it is unknown."""
    verdict.why_not = why_blind(runs)
    if verdict.why_not:
        return
    seen = [test for test in tests if test.seen_from_ms <= _BLIND * step_ms]
    if not seen:
        seen_from = min(test.seen_from_ms for test in tests)
        verdict.why_not = (
            "Who is late is not known: the steps differ so much between ranks that only a rank "
            f"late by {duration(seen_from)} per step would have been seen."
            if math.isfinite(seen_from)
            else "Who is late is not known: the ranks have too few steps in common."
        )
        return
    verdict.seen_from_ms = max(test.seen_from_ms for test in seen)
    late = seen[-1].late
    latest = max(range(len(runs)), key=lambda i: late[i].late_ms)
    where = " in the other steps" if verdict.hangs else ""
    verdict.why_not = (
        f"No rank is late{where}: the most own work, that of rank {runs[latest].row.rank}, is "
        f"{duration(max(late[latest].late_ms, 0.0))} per step above the others' median."
    )
    if len(seen) < len(tests):
        verdict.why_not += (
            " Waiting for a CPU is left out: it differs so much from step to step that a "
            f"rank late by it would have been seen from {duration(tests[-1].seen_from_ms)} per "
            "step on."
        )
    if tests[-1].spread_ms >= _TURNS * step_ms:
        verdict.why_not += (
            f" The last rank of each step is {duration(tests[-1].spread_ms)} later than the others "
            "on average, but it is not always the same rank."
        )


def worth(one: Lateness) -> float:
    """Return a rank's delay against the others over all steps, in ms per step; 0: not late."""
    if one.late:
        return one.late_ms
    return sum(w.steps * w.late_ms for w in one.windows) / one.steps if one.windows else 0.0


def straggler_of(
    runs: Sequence[RankRun],
    test: LatenessTest,
    step_ms: float,
    at: int | None = None,
    since: int = 0,
) -> Straggler:
    """Return the details of a late rank's delay.

    Args:
        test: the test that found it.
        at: its index in ``runs``; None: the latest.
        since: the times are of later steps only, if there are a few.
    """
    late, signal = test.late, test.signal
    latest = max(range(len(runs)), key=lambda i: worth(late[i])) if at is None else at
    run, one = runs[latest], late[latest]
    others = [i for i in range(len(runs)) if i != latest]
    window = None if one.late else max(one.windows, key=lambda w: w.steps * w.late_ms)
    first, last = (0, _EVER) if window is None else (window.first, window.last)
    if sum(since <= number <= last for number in test.owns[latest].numbers) >= _FEW:
        first = max(first, since)
    works = [_mean_of(own, first, last) for own in test.owns]
    usual = median([works[i] for i in others])
    late_ms = works[latest] - usual
    if run.steps is not None:
        # The mean, like late_ms: readers divide the two.
        step_ms = _mean_of(Series(run.steps.numbers, run.steps.wall), first, last) or step_ms
    section = (
        NOWHERE
        if signal == "cpu"
        else most_of(
            sections_of(run, signal, first, last),
            [
                found
                for found in (sections_of(runs[i], signal, first, last) for i in others)
                if found
            ]
            or [{}],
            late_ms,
        )
    )
    if signal == "gpu" and (section[0] is None):
        section = _gpu_section([r.row for r in runs], latest, others, late_ms)
    row = run.row
    waiting = [_cpu_wait(r, first, last) for r in runs]
    without_cpu = median([waiting[i] for i in others])
    told = not test.plain and waiting[latest] - without_cpu >= late_ms / 2
    noteworthy = (
        waiting[latest] >= _NOTEWORTHY * works[latest]
        or without_cpu >= max(_NOTEWORTHY * usual, _LEAST_WAIT_MS)
        or abs(waiting[latest] - without_cpu) >= _DIFFERS * late_ms
    )
    return Straggler(
        rank=row.rank,
        host=row.host,
        work_ms=works[latest],
        others_ms=usual,
        late_ms=late_ms,
        late_share=late_ms / step_ms if step_ms else 0.0,
        section=section[0],
        section_ms=section[1],
        section_others_ms=section[2],
        waits=tuple((runs[i].row.rank, max(0.0, works[latest] - works[i])) for i in others),
        also=tuple(
            runs[i].row.rank
            for i in others
            if one.late and late[i].late and late[i].late_ms >= ALSO_LATE * one.late_ms
        ),
        period=None
        if window is None
        else LatePeriod(row.rank, window.first, window.last, window.late_ms),
        late_steps=one.late_steps if window is None else None,
        signal=signal,
        cpu_wait=(waiting[latest], without_cpu) if told else None,
        without_cpu_wait=test.plain and noteworthy,
        # Functions are known for the whole run only, in which ranks that take turns are equal.
        functions=()
        if window is not None and any(late[i].windows for i in others)
        else function_excess(run, [runs[i] for i in others], worth(one)),
    )


def healthy(verdict: Verdict) -> tuple[int, int] | None:
    """Return from which step to which the late rank was not late yet; None: it was, or unknown."""
    late = verdict.straggler
    if late is None or late.late_steps is None or late.late_steps < SELDOM:
        return None
    hung = {hang.step for hang in verdict.hangs if hang.rank == late.rank}
    series = verdict.lateness[late.rank].without(hung)
    lateness = dict(zip(series.numbers, series.ms, strict=True))
    if not lateness:
        return None
    first, shown = begin(lateness, late.late_ms, verdict.step_ms)
    return (min(lateness), first) if shown else None


def _cpu_wait(run: RankRun, first: int, last: int) -> float:
    if run.steps is None or run.steps.cpu_wait is None:
        return 0.0
    return _mean_of(Series(run.steps.numbers, run.steps.cpu_wait), first, last)


def _mean_of(own: Series, first: int, last: int) -> float:
    kept = [ms for n, ms in zip(own.numbers, own.ms, strict=True) if first <= n <= last]
    return fmean(kept) if kept else 0.0


def _gpu_section(
    rows: Sequence[RankRow], latest: int, others: Sequence[int], late_ms: float
) -> tuple[str | None, float | None, float | None]:
    here = rows[latest].gpu_compute_ms
    known = [ms for ms in (rows[i].gpu_compute_ms for i in others) if ms is not None]
    if here is None or not known:
        return None, None, None
    return most_of({"GPU": here}, [{"GPU": ms} for ms in known], late_ms)
