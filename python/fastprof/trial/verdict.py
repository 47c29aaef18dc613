"""Judges a candidate from the mean step times of its runs and of the baseline's.

The runs are compared as ``fastprof compare`` compares several runs per side, by Welch's t test on
their means; here on the logarithms of these.  What disturbs a run makes it longer by a part, so a
slower fix varies by more milliseconds, while logarithms vary equally.  It is looked at after
several rounds, and each look may call chance a difference.  So the error is spent by the function
of Lan and DeMets ("Discrete sequential boundaries for clinical trials", Biometrika 70, 1983) that
is similar to Pocock's boundary::

    spent(t) = alpha * ln(1 + (e - 1) t),   t = rounds / most rounds

A look is tested at what it adds, on each side.  The looks together then call a fix without effect
real at most as often as the sum of their levels, alpha (Bonferroni's inequality), however they
depend on each other; and slower at most as often.

Rounds also end if the next ones would hardly show a saving: if, by one as it was measured, the last
look finds one in fewer than :data:`HOPE` of all cases (Lan, Simon and Halperin, "Stochastically
curtailed tests in long-term clinical trials", Sequential Analysis 1, 1982).  That calls fewer fixes
real, so alpha remains a bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, mean

from fastprof.comparison.stats.significance import welch
from fastprof.trial.model import NO_DIFFERENCE, OPEN, REAL, WORSE

#: A fix without effect is called real at most this often, and worse at most as often.
ALPHA = 0.01
#: Rounds of runs: before the first look, and at most.
FIRST, MOST = 2, 6
HOPE = 0.05
#: The level of the intervals that are shown.
LEVEL = 0.95
#: A fix that saves less than this part of a step, surely, is no longer measured.
SMALL = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """The status of a candidate after some rounds, and the part of the step that it saves.

    ``low`` and ``high`` are the interval of ``share`` at 95 %; None with one run per side.
    """

    status: str
    share: float | None = None
    low: float | None = None
    high: float | None = None


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
    rounds, first = len(runs), min(FIRST, most)
    before, after = list(map(math.log, baseline)), list(map(math.log, runs))
    found = welch(before, after, level=LEVEL)
    if found is None:
        return Verdict(OPEN, -math.expm1(mean(after) - mean(before)))
    share, low, high = (-math.expm1(x) for x in (found.estimate, found.high, found.low))
    level = spent(rounds, most) - (spent(rounds - 1, most) if rounds > first else 0.0)
    # How often a fix without effect saves as much.
    p = found.p / 2 if share > 0 else 1 - found.p / 2
    if rounds < first:
        status = OPEN
    elif p <= level:
        status = REAL
    elif 1 - p <= level:
        status = WORSE
    else:
        ends = rounds >= most or high < SMALL or _is_hopeless(p, rounds, most)
        status = NO_DIFFERENCE if ends else OPEN
    return Verdict(status, share, low, high)


def _is_hopeless(p: float, rounds: int, most: int) -> bool:
    """Return whether the last look would hardly find a saving, by the trend of these rounds."""
    normal, part = NormalDist(), rounds / most
    last = spent(most, most) - spent(most - 1, most)
    z, needed = (-normal.inv_cdf(level) for level in (min(p, 1 - 1e-9), last))
    return normal.cdf((z / math.sqrt(part) - needed) / math.sqrt(1 - part)) < HOPE


def mean_ms(ends_ns: Sequence[int], skip: int) -> float:
    """Return the mean time from step to step in ms, after the first ``skip`` ones.

    It contains what happens between steps, such as the start of workers at an epoch.
    """
    return (ends_ns[-1] - ends_ns[skip]) / 1e6 / (len(ends_ns) - 1 - skip)
