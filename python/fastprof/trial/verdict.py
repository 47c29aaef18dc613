"""Judges a candidate from the mean step times of its runs and of the baseline's.

The runs are compared as ``fastprof compare`` compares several runs per side: by Welch's t test on
their means.  It is looked at after several rounds, and each look may call chance a difference.  So
the error is spent by the function of Lan and DeMets ("Discrete sequential boundaries for clinical
trials", Biometrika 70, 1983) that is similar to Pocock's boundary::

    spent(t) = alpha * ln(1 + (e - 1) t),   t = rounds / most rounds

A look is tested at what it adds.  The looks together then err at most as often as the sum of their
levels, alpha (Bonferroni's inequality), however they depend on each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.comparison.model import Effect
from fastprof.comparison.stats.significance import effect_of_runs
from fastprof.trial.model import NO_DIFFERENCE, OPEN, REAL, WORSE

#: A fix without effect is called real, or worse, at most this often.
ALPHA = 0.01
#: Rounds of runs: before the first look, and at most.
FIRST, MOST = 3, 6
#: The level of the intervals that are shown.
LEVEL = 0.95
#: A fix that saves less than this part of a step, surely, is no longer measured.
SMALL = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """The status of a candidate after some rounds, and the change of its step's time."""

    status: str
    effect: Effect


def spent(rounds: int, most: int, alpha: float = ALPHA) -> float:
    """Return the part of ``alpha`` that the looks up to this round may use."""
    return alpha * math.log(1 + (math.e - 1) * min(1.0, rounds / most))


def judge(baseline: Sequence[float], runs: Sequence[float], *, most: int = MOST) -> Verdict:
    """Return the verdict after as many rounds as there are runs of the candidate.

    Args:
        baseline: the mean step of each run without a fix, in ms.
        runs: the same with it.
        most: the number of rounds after which nothing stays open.
    """
    rounds = len(runs)
    first = min(FIRST, most)
    effect = effect_of_runs("step", "step", baseline, runs, level=LEVEL)
    if rounds < first or effect.p is None:
        return Verdict(OPEN if rounds < most else NO_DIFFERENCE, effect)
    level = spent(rounds, most) - (spent(rounds - 1, most) if rounds > first else 0.0)
    if effect.p <= level and effect.difference_ms:
        return Verdict(REAL if effect.difference_ms < 0 else WORSE, effect)
    saves_little = (effect.low_ms or 0.0) > -SMALL * (effect.before_ms or 0.0)
    return Verdict(NO_DIFFERENCE if rounds >= most or saves_little else OPEN, effect)


def mean_ms(ends_ns: Sequence[int], skip: int) -> float:
    """Return the mean time from step to step in ms, after the first ``skip`` ones.

    It contains what happens between steps, such as the start of workers at an epoch.
    """
    return (ends_ns[-1] - ends_ns[skip]) / 1e6 / (len(ends_ns) - 1 - skip)
