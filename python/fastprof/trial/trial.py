"""The course of a trial: the first run, rounds of runs in turns, all that helped together."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import geometric_mean

from fastprof.comparison.stats import batches
from fastprof.errors import FastprofError
from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.trial import losses, verdict
from fastprof.trial.choose import candidates, joined, notes
from fastprof.trial.interventions import Intervention
from fastprof.trial.model import (
    EARLY,
    LOSSES,
    NO_DIFFERENCE,
    NO_EFFECT,
    OPEN,
    REAL,
    Answer,
    Candidate,
    Plan,
    TrialData,
    Tried,
)
from fastprof.trial.patch import diff, keeping
from fastprof.trial.runs import Failure, Runs

#: The first run ends after so many steps, or so many seconds of them.
_FIRST_STEPS, _FIRST_S, _LEAST = 300, 30.0, 60
#: Steps at the beginning that no mean contains: caches and allocators fill.
SKIP = 3
#: Fewest steps of a run.
FEWEST = 8
#: The standard error that a run's mean should have, as a part of it.
_PRECISION = 0.01
#: Runs have at least so many steps, or so many seconds of them, if the program has them.
_SOME, _SOME_S = 40, 3.0

#: The first recording, which keeps the results; below the folder of the trial.
FIRST_RUN = "train_profile"


#: They contradict each other: without workers none can stay, or read ahead.
_EITHER = (
    {"no-workers", "workers"}, {"no-workers", "persistent"}, {"no-workers", "prefetch"},
    {"fused", "foreach"},
)  # fmt: skip


class TrialError(FastprofError):
    """There is nothing to try, with the reason; one line for the user."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user wants tried; see ``fastprof try --help``."""

    only: Sequence[Intervention] | None = None
    skip: Sequence[str] = ()
    numerics: bool = False
    steps: int | None = None
    rounds: int = verdict.MOST


@dataclass(slots=True)
class _Arm:
    """A candidate and its runs; the baseline has none.

    ``begin`` is the number of runs of the baseline before the one of its first round.
    """

    candidate: Candidate | None
    begin: int = 0
    ms: list[float] = field(default_factory=list)
    losses: list[tuple[float | None, ...]] = field(default_factory=list)
    status: str = OPEN
    reason: str = ""
    said: str | None = ""


class Trial:
    """One trial of a program.

    Args:
        runs: starts its processes.
        choice: what the user wants tried.
        load: reads a saved run.
        tell: called with what begins, for a progress line.
    """

    def __init__(
        self,
        runs: Runs,
        choice: Choice,
        load: Callable[[str], Report],
        tell: Callable[[str], None],
    ) -> None:
        self._runs = runs
        self._choice = choice
        self._load = load
        self._tell = tell
        self._baseline = _Arm(None)
        self._arms: list[_Arm] = []
        self._together: _Arm | None = None
        self._last: _Arm | None = None
        self._steps = 0
        self._first: Answer | None = None
        self._notes: list[str] = []

    def run(self, program: str) -> TrialData:
        """Try what the first run suggests; Ctrl-C ends it with what is known.

        Raises:
            TrialError: the program failed without a fix, or has too few steps.
        """
        stopped = ""
        try:
            self._first = first = self._first_run()
            report = self._recorded()
            self._notes = notes(report)
            found = candidates(
                report, first,
                only=self._choice.only, skip=self._choice.skip, numerics=self._choice.numerics,
            )  # fmt: skip
            self._arms = [_Arm(one) for one in found]
            self._steps = self._choice.steps or steps_for(first.ends_ns)
            self._steps = min(self._steps, len(first.ends_ns))
            if self._arms:
                self._rounds(self._arms)
                self._try_together()
        except KeyboardInterrupt:
            if self._first is None:
                raise
            stopped = "Ctrl-C"
        return self._result(program, stopped)

    def _first_run(self) -> Answer:
        wanted = self._choice.steps
        plan = Plan(
            "", "", wanted or _FIRST_STEPS, observe=True,
            seconds=0.0 if wanted else _FIRST_S, least=_LEAST,
        )  # fmt: skip
        self._tell("the program as it is, to see what may help")
        answer = self._runs.run(FIRST_RUN, plan, is_baseline=True)
        if isinstance(answer, Failure):
            raise TrialError(
                f"the program failed without any fix: {answer.reason} "
                f"(its output: {self._runs.folder}/{FIRST_RUN}.log)"
            )
        count = len(answer.ends_ns)
        if count < FEWEST:
            raise TrialError(
                f"the program made {plural(count, 'step')}, {FEWEST} are needed; steps are those "
                "of torch's optimizers, or batches of its loaders"
            )
        return answer

    def _recorded(self) -> Report:
        try:
            return self._load(f"{self._runs.folder}/{FIRST_RUN}.fprof")
        except OSError:
            raise TrialError(
                "the program had to be ended by force after its last step, so the first run has "
                "no recording: its threads or functions at exit do not end"
            ) from None

    def _rounds(self, arms: Sequence[_Arm]) -> None:
        """Run these and the baseline in turns, there and back: a drift favours neither side."""
        for number in range(1, self._choice.rounds + 1):
            under_way = [arm for arm in arms if arm.status == OPEN]
            if not under_way:
                return
            # A run of the baseline that has just ended is the first one of this turn.
            has_begun = number == 1 and self._last is self._baseline
            turn = [*([] if has_begun else [self._baseline]), *under_way]
            if number == 1:
                for arm in under_way:
                    arm.begin = len(self._baseline.ms) - has_begun
            for arm in turn if number % 2 else reversed(turn):
                self._go(arm)
            for arm in under_way:
                self._judge(arm)

    def _go(self, arm: _Arm) -> None:
        """Run an arm once, and note the result."""
        self._last = arm
        apply = {} if arm.candidate is None else arm.candidate.parts
        name = f"{'baseline' if arm.candidate is None else arm.candidate.name}-{len(arm.ms) + 1}"
        spelled = "baseline" if arm.candidate is None else arm.candidate.spelled
        most = 1 + (1 + len(self._arms)) * self._choice.rounds
        self._tell(f"run {self._runs.count + 1} of about {most} at most: {spelled}")
        plan = Plan("", "", self._steps, apply=apply)
        answer = self._runs.run(name, plan, is_baseline=arm.candidate is None)
        if isinstance(answer, Failure):
            if arm.candidate is None:
                raise TrialError(f"the program failed in another run: {answer.reason}")
            arm.status, arm.reason = answer.status, answer.reason
            return
        made = len(answer.ends_ns)
        if made < self._steps:
            only = f"only {made} of {plural(self._steps, 'step')}"
            if arm.candidate is None:
                raise TrialError(f"the program made {only} in another run: --steps {made}")
            arm.status, arm.reason = EARLY, only
            return
        missing = [part for part in apply if not answer.applied.get(part)]
        if missing and not arm.ms and arm is not self._together:
            arm.status, arm.reason = NO_EFFECT, "the program makes no call that it changes"
            return
        arm.ms.append(verdict.mean_ms(answer.ends_ns, min(SKIP, self._steps - 2)))
        arm.losses.append(answer.losses)

    def _judge(self, arm: _Arm) -> None:
        if arm.status != OPEN:
            return
        if len(arm.ms) > 1:
            same, arm.said = losses.judged(self._baseline.losses, arm.losses)
            if not same and arm.candidate is not None and not arm.candidate.changes_results:
                arm.status, arm.reason = LOSSES, arm.said or ""
                return
        arm.status = self._verdict(arm).status

    def _verdict(self, arm: _Arm) -> verdict.Verdict:
        # Of the rounds in which it ran.
        base = self._baseline.ms[arm.begin : arm.begin + len(arm.ms)]
        return verdict.judge(base, arm.ms, most=self._choice.rounds)

    def _try_together(self) -> None:
        helped = compatible([arm for arm in self._arms if arm.status == REAL])
        if len(helped) < 2:
            return
        self._together = _Arm(joined(helped))
        self._rounds([self._together])

    def _result(self, program: str, stopped: str) -> TrialData:
        base = self._baseline.ms
        mean = geometric_mean(base) if base else None
        tried = tuple(self._tried(arm, mean) for arm in self._arms)
        together = None if self._together is None else self._tried(self._together, mean)
        helped = compatible([arm for arm in self._arms if arm.status == REAL])
        if together is not None and together.status not in (REAL, NO_DIFFERENCE, OPEN):
            helped = helped[:1]  # they do not go together: the better one
        kept = [one for one in tried if one.candidate in helped]
        kept.sort(key=lambda one: helped.index(one.candidate))
        calls = () if self._first is None else self._first.calls
        patch, by_hand = diff(kept, calls)
        return TrialData(
            program,
            str(self._runs.folder),
            self._steps,
            mean,
            len(base),
            tried,
            together,
            keeping(kept, calls),
            patch,
            tuple(by_hand),
            notes=tuple(self._notes),
            stopped=stopped,
            processes=self._runs.count,
        )

    def _tried(self, arm: _Arm, mean: float | None) -> Tried:
        candidate = arm.candidate
        assert candidate is not None
        promised = candidate.saving_ms
        predicted = None if mean is None or promised is None else max(0.0, mean - promised)
        out = Tried(
            candidate, arm.status, len(arm.ms),
            predicted_ms=predicted, losses=arm.said, reason=arm.reason,
        )  # fmt: skip
        if not arm.ms or len(self._baseline.ms) <= arm.begin:
            return out
        found = self._verdict(arm)
        return replace(
            out,
            step_ms=_times(None if found.share is None else 1 - found.share, mean),
            saving_ms=_times(found.share, mean),
            low_ms=_times(found.low, mean),
            high_ms=_times(found.high, mean),
            share=found.share,
            share_low=found.low,
            share_high=found.high,
        )


def compatible(arms: Sequence[_Arm]) -> list[Candidate]:
    """Return the candidates that can be applied together: of two that cannot, the better one.

    The best one is the first.
    """
    kept: list[Candidate] = []
    for arm in sorted(arms, key=lambda arm: geometric_mean(arm.ms)):
        one = arm.candidate
        if one is not None and not any({one.name, other.name} in _EITHER for other in kept):
            kept.append(one)
    return kept


def _times(share: float | None, mean: float | None) -> float | None:
    return None if share is None or mean is None else share * mean


def steps_for(ends_ns: Sequence[int]) -> int:
    """Return how many steps a run needs for a mean of the wanted precision, at most all of these.

    Args:
        ends_ns: the ends of the first run's steps.
    """
    ms = [(b - a) / 1e6 for a, b in pairwise(ends_ns)][SKIP - 1 :]
    if len(ms) < batches.FEWEST_STEPS:
        return len(ends_ns)
    mean = math.fsum(ms) / len(ms)
    relative = batches.variance_of_mean(ms) / mean**2
    wanted = math.ceil(len(ms) * relative / _PRECISION**2)
    some = min(math.ceil(1000 * _SOME_S / mean), 10 * _SOME)
    return min(len(ends_ns), SKIP + max(wanted, some, _SOME))
