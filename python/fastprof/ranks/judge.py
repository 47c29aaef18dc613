"""Tests which rank is late and in which steps, by paired statistics of steps.

Ranks that exchange gradients share the noise of a step: all of them wait for the latest rank
in it.  So a rank's own work is compared with the others *in the same step*, which removes
that noise::

    lateness of a rank in a step = its own work - median of the others' in that step

A rank is late if its mean lateness is above zero by a test (Student's t over blocks of
steps), and is a significant share of the step.  A rank that is late in some steps only has
a window: the run of blocks with the most lateness.  A few steps in which a rank is late by
several steps' length are hangs; both tests leave them out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from statistics import fmean, median

from fastprof.report.student import critical

#: A rank is late if its delay is at least this share of the step.
LATE_SHARE = 0.03
#: By chance, one in this many jobs with equal ranks has a late rank.
FALSE_ALARMS = 2000.0
#: The standard error comes from this many blocks of neighbouring steps.
_BLOCKS = 12
#: This share of the steps at either end is extreme.
_EXTREMES = 0.1
#: The search for windows uses blocks of at least 5 steps, and at most 120 blocks.
_FINE_STEPS = 5
_FINE_BLOCKS = 120
#: A window has at least this many blocks.
_WINDOW_BLOCKS = 3
#: Most windows per rank.
_MAX_WINDOWS = 8
#: Ranks whose numbers of steps, and times per step, differ by more than this share from the
#: median rank's do not wait for each other.
_APART = 0.2
#: Step times that differ by at most this share are equal.
_EQUAL = 0.05
#: The part of the chance of a false alarm that is left for a test of several windows together.
_FOR_SEVERAL = 0.1
#: A window with this share of the steps is the whole run.
_WHOLE = 0.9
#: The steps that all ranks have stand for a rank's steps if they are this part of them.
_MOST_STEPS = 0.8
#: Hangs are at least 3 median steps long and are at most 2 % of the steps; 2 are always allowed.
_HANG_STEPS = 3.0
_HANG_PART = 0.02
_HANG_ALWAYS = 2
#: The median of the others among fewer ranks is not robust.
_ROBUST = 4


@dataclass(frozen=True, slots=True)
class Series:
    """One value per step of one rank: the steps' numbers, ascending, and ms in each."""

    numbers: Sequence[int]
    ms: Sequence[float]

    def without(self, steps: Collection[int]) -> Series:
        if not steps:
            return self
        kept = [(n, ms) for n, ms in zip(self.numbers, self.ms, strict=True) if n not in steps]
        return Series([n for n, _ in kept], [ms for _, ms in kept])


@dataclass(frozen=True, slots=True)
class Window:
    """Steps ``first`` to ``last`` (0-based), in which a rank is late by ``late_ms`` each."""

    first: int
    last: int
    steps: int
    late_ms: float


@dataclass(frozen=True, slots=True)
class Lateness:
    """Comparison of one rank with the others.

    ``late_ms`` is its mean lateness per step, ``error_ms`` the standard error of that mean,
    ``seen_from_ms`` the smallest lateness that the test detects.  ``late``: it is late in
    general.  ``windows``: it is late only, or mostly, in these steps.  ``hangs`` are
    (step, ms).  ``late_steps`` is the share of the steps in which it is late by at least half
    of the mean.
    """

    late_ms: float
    error_ms: float
    seen_from_ms: float
    late: bool
    windows: tuple[Window, ...]
    hangs: tuple[tuple[int, float], ...]
    late_steps: float
    steps: int


def lateness(
    owns: Sequence[Series], step_ms: float, alarms: float = FALSE_ALARMS
) -> tuple[list[Lateness], float, list[Series]]:
    """Compare ranks that wait for each other.

    Args:
        owns: own work per rank; at least two.
        alarms: by chance, each test finds a late rank in one of this many jobs with equal ranks.

    Returns:
        One value per rank; how much later the last rank of a step is than the median one, as
        the mean over steps in ms; and the lateness of each rank step by step, in ms.
    """
    lates, spread = _against_others(owns)
    hangs = [_hangs(late, step_ms) for late in lates]
    hung = [{step for step, _ in found} for found in hangs]
    if len(lates) < _ROBUST:
        # The hang of a rank is in the median of the others.
        hung = [set().union(*hung)] * len(lates)
    kept = [late.without(steps) for late, steps in zip(lates, hung, strict=True)]
    judged = []
    usual = _usual([late.ms for late in kept])
    chance = 1.0 / alarms / len(owns)
    for late, base, found, ahead in zip(kept, usual, hangs, _ahead(owns, kept), strict=True):
        net = [ms - base for ms in late.ms]
        one = _judge(late.numbers, net, step_ms, chance, found, ahead)
        # Only the test is of what is left: in its window the rank is late by all of it.
        windows = tuple(replace(w, late_ms=w.late_ms + base) for w in one.windows)
        judged.append(replace(one, windows=windows))
    return judged, spread, lates


def judge_one(late: Series, step_ms: float, chance: float) -> Lateness:
    """Judge the lateness of one rank against the usual own work of many others.

    Args:
        late: its own work minus the usual own work, in each of its steps.
        chance: the probability that a rank like the others is called late.
    """
    hangs = _hangs(late, step_ms)
    kept = late.without({step for step, _ in hangs})
    return _judge(kept.numbers, kept.ms, step_ms, chance, hangs)


def _usual(lates: Sequence[Sequence[float]]) -> list[float]:
    """Return, per rank, the median of the others' mean lateness, or 0 if that is negative.

    If equal ranks pause in turns, the mean of each is above the median of the others.
    """
    means = sorted((fmean(late), i) for i, late in enumerate(lates) if late)
    if len(means) < 3:
        return [0.0] * len(lates)
    others = _medians_of_others(means)
    return [max(0.0, others.get(i, 0.0)) for i in range(len(lates))]


def _ahead(owns: Sequence[Series], lates: Sequence[Series]) -> list[float]:
    """Return how far the mean own work of each rank is above the median of the others.

    If others are late in turns, the median of the others in a step contains none of their delays,
    so this is less than the mean lateness.  It is of the steps that all ranks have; inf: they are
    too few of this rank's.
    """
    ahead = [math.inf] * len(owns)
    known = {i: set(late.numbers) for i, late in enumerate(lates) if late.ms}
    common = set.intersection(*known.values()) if len(known) > 1 else set()
    if common:
        works = sorted((_mean_in(owns[i], common), i) for i in known)
        others = _medians_of_others(works)
        for ms, i in works:
            if len(common) >= _MOST_STEPS * len(known[i]):
                ahead[i] = ms - others[i]
    return ahead


def _mean_in(series: Series, steps: Collection[int]) -> float:
    return fmean([ms for n, ms in zip(series.numbers, series.ms, strict=True) if n in steps])


def _against_others(owns: Sequence[Series]) -> tuple[list[Series], float]:
    found: list[tuple[list[int], list[float]]] = [([], []) for _ in owns]
    enough = max(2, (len(owns) + 1) // 2)
    worst = []
    at = [0] * len(owns)  # per rank: the row of the next of its steps
    for number in sorted(set().union(*(own.numbers for own in owns))):
        values = []
        for rank, own in enumerate(owns):
            row = at[rank]
            if row < len(own.numbers) and own.numbers[row] == number:
                values.append((own.ms[row], rank))
                at[rank] = row + 1
        n = len(values)
        if n < enough:
            continue
        values.sort()
        for place, (ms, rank) in enumerate(values):
            numbers, late = found[rank]
            numbers.append(number)
            late.append(ms - _median_without(values, place, n))
        worst.append(values[-1][0] - _median_without(values, n - 1, n))
    # Hangs are reported separately.
    worst.sort()
    del worst[len(worst) - max(_HANG_ALWAYS, int(_HANG_PART * len(worst))) :]
    return [Series(*pair) for pair in found], fmean(worst) if worst else 0.0


def _medians_of_others(values: Sequence[tuple[float, int]]) -> dict[int, float]:
    """Return, per rank, the median of the others' values; ``values`` ascend, at least two."""
    return {i: _median_without(values, at, len(values)) for at, (_, i) in enumerate(values)}


def _median_without(values: Sequence[tuple[float, int]], left_out: int, n: int) -> float:
    def at(place: int) -> float:
        return values[place if place < left_out else place + 1][0]

    middle = (n - 1) // 2
    return at(middle) if n % 2 == 0 else (at(middle - 1) + at(middle)) / 2


def _judge(
    numbers: Sequence[int],
    late: Sequence[float],
    step_ms: float,
    chance: float,
    hangs: Sequence[tuple[int, float]],
    ahead: float = math.inf,
) -> Lateness:
    if len(late) < 2:
        return Lateness(0.0, math.inf, math.inf, False, (), tuple(hangs), 0.0, len(late))
    least = LATE_SHARE * step_ms
    # Two tests of the mean, and one for windows.
    chance /= 3.0
    mean, error, seen_from = _mean(late, 1.0, least, chance)
    # Long steps of the others may outweigh a delay: then the job waits for them instead.
    counts = min(mean, ahead) >= least / 2
    is_late = counts and mean >= seen_from > 0
    if counts and not is_late:
        # A delay in every step shows better without the extremes of a few.
        steady, steady_error, steady_from = _mean(*_without_extremes(late), least, chance)
        if steady >= steady_from > 0:
            is_late, mean, error = True, steady, steady_error
    windows = _windows(numbers, late, least, chance)
    if is_late and windows and not _explains(windows, late, mean):
        windows = []
    part = sum(ms >= max(least, mean) / 2 for ms in late) / len(late)
    whole = is_late and not windows
    return Lateness(mean, error, seen_from, whole, tuple(windows), tuple(hangs), part, len(late))


def _mean(
    late: Sequence[float], kept: float, least: float, chance: float
) -> tuple[float, float, float]:
    """Return the mean, its error, and the limit from which it is more than chance.

    If only the share ``kept`` of the values is unchanged, the rest varies too little: error
    and degrees of freedom are corrected as by Tukey and McLaughlin (Sankhya A 25, 1963).
    """
    blocks = _means(late, max(1, len(late) // _BLOCKS))
    error = _noise(_residuals(blocks), 1) / kept / math.sqrt(len(blocks))
    freedom = int(kept * len(blocks)) - 1
    return fmean(late), error, max(least, _student(chance, freedom) * error)


def _without_extremes(late: Sequence[float]) -> tuple[list[float], float]:
    """Return the values with extremes moved inwards (winsorized), and the unchanged share."""
    ordered = sorted(late)
    cut = int(len(late) * _EXTREMES)
    low, high = ordered[cut], ordered[-cut - 1]
    return [min(max(value, low), high) for value in late], 1.0 - 2.0 * cut / len(late)


def _explains(windows: Sequence[Window], late: Sequence[float], mean: float) -> bool:
    """Return whether a rank is late in its windows, and much less otherwise."""
    inside = sum(window.steps for window in windows)
    if inside >= _WHOLE * len(late):
        return False
    total = sum(window.steps * window.late_ms for window in windows)
    outside = (mean * len(late) - total) / (len(late) - inside)
    return outside < total / inside / 3


def _hangs(late: Series, step_ms: float) -> list[tuple[int, float]]:
    if not late.ms:
        return []
    usual = median(late.ms)
    spread = 1.4826 * median([abs(ms - usual) for ms in late.ms])
    limit = max(_HANG_STEPS * step_ms, 20.0 * spread)
    found = [(n, ms) for n, ms in zip(late.numbers, late.ms, strict=True) if ms - usual > limit > 0]
    few = max(_HANG_ALWAYS, int(_HANG_PART * len(late.ms)))
    return found if len(found) <= few else []


def _means(values: Sequence[float], length: int) -> list[float]:
    """Return means of neighbouring values; the last block takes the remaining ones."""
    count = max(1, len(values) // length)
    edges = [i * length for i in range(count)] + [len(values)]
    return [fmean(values[a:b]) for a, b in pairwise(edges)]


def _windows(
    numbers: Sequence[int], late: Sequence[float], least: float, chance: float
) -> list[Window]:
    length = max(_FINE_STEPS, math.ceil(len(late) / _FINE_BLOCKS))
    means = _means(late, length)
    n = len(means)
    if n < _WINDOW_BLOCKS + 2:
        return []
    # Any run of blocks could have been the one with the most lateness.
    limit = _student(2.0 * chance / (n * n), n - 2)
    found: list[Window] = []
    free = [True] * n
    usual = [True] * n  # in no window
    while len(found) < _MAX_WINDOWS:
        best = _next_run(means, least, free)
        if best is None:
            break
        first, last = best
        inside = means[first : last + 1]
        mean = fmean(inside)
        before = [m for m, ok in zip(means[:first], usual, strict=False) if ok]
        after = [m for m, ok in zip(means[last + 1 :], usual[last + 1 :], strict=True) if ok]
        outside = before + after
        if len(inside) < _WINDOW_BLOCKS or len(outside) < 2 or mean < least:
            continue
        others = fmean(outside)
        noise = _noise(
            [*(m - others for m in before), *(m - mean for m in inside)]
            + [m - others for m in after],
            2,
        )
        typical = median(late[first * length : (last + 1) * length])
        if (
            mean - others < limit * noise * math.sqrt(1 / len(inside) + 1 / len(outside))
            # A few long pauses are not a window.
            or typical < mean / 2
        ):
            continue
        usual[first : last + 1] = [False] * len(inside)
        found.append(_window(numbers, late, first, last, length, mean))
    runs = [] if found else _several(means, least, chance * _FOR_SEVERAL)
    found += [
        _window(numbers, late, first, last, length, fmean(means[first : last + 1]))
        for first, last in runs
        if median(late[first * length : (last + 1) * length]) >= least / 2
    ]
    return sorted(found, key=lambda w: w.first)


def _several(means: Sequence[float], least: float, chance: float) -> list[tuple[int, int]]:
    """Return the windows of a rank that has several: each is noise to a test of another.

    They are tested together: two levels of lateness, one in the windows and one elsewhere.
    """
    n = len(means)
    free = [True] * n
    runs: list[tuple[int, int]] = []
    # Above a lower level, the run with the most lateness would contain the time between windows.
    level = max(least, median([m for m in means if m > least] or [0.0]) / 2)
    while len(runs) < _MAX_WINDOWS and (best := _next_run(means, level, free)) is not None:
        first, last = best
        if last - first + 1 >= _WINDOW_BLOCKS and fmean(means[first : last + 1]) >= least:
            runs.append(best)
    for count in range(len(runs), 1, -1):
        inside = [False] * n
        for first, last in runs[:count]:
            inside[first : last + 1] = [True] * (last - first + 1)
        there = [m for m, ok in zip(means, inside, strict=True) if ok]
        elsewhere = [m for m, ok in zip(means, inside, strict=True) if not ok]
        if len(elsewhere) < _WINDOW_BLOCKS:
            continue
        high, low = fmean(there), fmean(elsewhere)
        residuals = [m - (high if ok else low) for m, ok in zip(means, inside, strict=True)]
        # Any windows could have been those with the most lateness.
        limit = _student(chance / _MAX_WINDOWS / math.comb(n + 1, 2 * count), n - 2)
        noise = limit * _noise(residuals, 2)
        if all(
            fmean(means[first : last + 1]) - low
            >= noise * math.sqrt(1 / (last - first + 1) + 1 / len(elsewhere))
            for first, last in runs[:count]
        ):
            return runs[:count]
    return []


def _next_run(means: Sequence[float], least: float, free: list[bool]) -> tuple[int, int] | None:
    """Return the run of free blocks with the most lateness, and take it."""
    best = _best_run([m - least if ok else -math.inf for m, ok in zip(means, free, strict=True)])
    if best is not None:
        free[best[0] : best[1] + 1] = [False] * (best[1] - best[0] + 1)
    return best


def _window(
    numbers: Sequence[int], late: Sequence[float], first: int, last: int, length: int, mean: float
) -> Window:
    a, b = _edges(late, first * length, min(len(late), (last + 1) * length), length, mean)
    kept = late[a:b]
    return Window(numbers[a], numbers[b - 1], len(kept), fmean(kept))


def _residuals(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]


def _noise(residuals: Sequence[float], means: int) -> float:
    """Return the standard deviation of a block, larger if neighbouring blocks are similar.

    ``residuals`` are blocks minus their mean; ``means`` is the number of different means.
    """
    squares = math.fsum(r * r for r in residuals)
    if not squares or len(residuals) <= means:
        return 0.0
    variance = squares / (len(residuals) - means)
    shared = fmean([a * b for a, b in pairwise(residuals)]) / variance
    shared = min(0.8, max(0.0, shared))
    return math.sqrt(variance * (1.0 + shared) / (1.0 - shared))


def _best_run(values: Sequence[float]) -> tuple[int, int] | None:
    """Return the run of neighbours with the largest sum; None if no value is above zero."""
    best, found, total, since = 0.0, None, 0.0, 0
    for i, value in enumerate(values):
        if total <= 0.0:
            total, since = 0.0, i
        total += value
        if total > best:
            best, found = total, (since, i)
    return found


def _edges(
    late: Sequence[float], first: int, end: int, length: int, mean: float
) -> tuple[int, int]:
    """Move both ends of a window from block edges to the steps where it begins and ends."""
    low, high = max(0, first - length), min(len(late), end + length)
    run = _best_run([ms - mean / 2 for ms in late[low:high]])
    if run is None:
        return first, end
    return low + run[0], low + run[1] + 1


@lru_cache(maxsize=1024)
def _student(chance: float, freedom: int) -> float:
    """Return the value that Student's t exceeds with this probability."""
    return critical(1.0 - 2.0 * chance, max(1, freedom))


def groups_in_step(walls: Mapping[int, float]) -> list[list[int]]:
    """Return groups of ranks whose steps take equally long: ranks of a group wait for each other.

    If a rank stands alone, all are one group: nothing shows who waits for whom.
    """
    order = sorted(walls, key=lambda rank: walls[rank])
    groups: list[list[int]] = []
    for rank in order:
        if groups and walls[rank] <= walls[groups[-1][-1]] * (1.0 + _EQUAL):
            groups[-1].append(rank)
        else:
            groups.append([rank])
    if any(len(group) < 2 for group in groups):
        return [sorted(order)]
    return [sorted(group) for group in groups]


def out_of_step(counts: Sequence[int], paces_ms: Sequence[float]) -> frozenset[int]:
    """Return the ranks that make more or fewer steps than the others, each faster or slower.

    No rank waits for such a rank in each step: it is a learner among actors, or it only evaluates.

    Args:
        counts: number of steps per rank, in the same time.
        paces_ms: time per step of each.
    """
    usual, pace = median(counts), median(paces_ms)
    return frozenset(
        rank
        for rank, (count, ms) in enumerate(zip(counts, paces_ms, strict=True))
        if (count < (1 - _APART) * usual and ms > (1 + _APART) * pace)
        or (count > (1 + _APART) * usual and ms < (1 - _APART) * pace)
    )
