"""Whether a series of means over time has changed: a shift since some moment, or a drift.

The values are means of many steps, all over the same time, as logarithms.  A *shift* is the split
into two levels with the largest t; a *drift* a straight line.  The one with the smaller residuals
is named.  Neighbouring values resemble each other, so n of them are worth as many independent ones
as n (1 - r) / (1 + r) (Bayley and Hammersley, "The effective number of independent observations in
an autocorrelated time series", Supplement to the Journal of the Royal Statistical Society 8, 1946):
t is divided by the square root of (1 + r) / (1 - r).  r is the autocorrelation of the residuals,
without its bias and a standard error higher (:mod:`~.blocks`), and at least :data:`TOGETHER`.

**False alarms.**  A run is tested at each new value, at every split, in several resolutions, on two
signals: less than 1.5 million tests in 1,000 hours of segments of 5 s, of up to 54 splits.
:data:`CHANCE` is the probability of each, so at most 0.8 alarms are expected if values are normal.
Heavy tails and slow parts are not, and few values show too little of them, so rules that need no
distribution come first: the levels differ by :data:`LEAST`; by more than the values before differ
from each other, the more so the fewer they are (:data:`WANDER`, :data:`FEW`, :data:`STEADY`); by
more than means over longer times ever did before; and most finer values since the change are beyond
most before.  A change that was found is taken out of the earlier values (:meth:`Watch.settle`), so
a run that was restless remains known as such.  ``tests/unit/test_changes_of_steps.py`` counts the
alarms in simulated runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from statistics import median

from fastprof.comparison.stats.blocks import first_autocorrelation
from fastprof.report.student import critical

#: Probability of a false alarm in one test.
CHANCE = 1e-8
#: Smaller changes, as a part of the level before, are none.
LEAST = 0.04
#: Values before a shift, and since then; values of a drift.
FEWEST_BEFORE, FEWEST_SINCE, FEWEST_DRIFT = 8, 3, 60
_EDGE = 0.1
#: A change is larger than that by which the values differ otherwise, times this.
WANDER = 1.25
#: The same of a drift, whose line follows slow noise.
STEADY = 2.0
#: Few values of slow noise differ less than more would: the difference of n values with
#: autocorrelation r counts 1 + FEW * r * r / n times.
FEW = 40
#: Autocorrelation of neighbouring values that is assumed, even if they do not show it: few values
#: show too little of a slow part.
TOGETHER = 0.5
#: Finer values since a shift, of which three of four must be beyond three of four before: means may
#: be large because of one value.
_FINER, _FINER_EDGE = 8, 0.25
#: Fewest values since a shift, and on one of its sides, in the finest resolution; and the part of
#: its size that it has in the second half of the time since then.  A pause that fades, or a busy
#: neighbour that comes for half a minute, is no new level.
LASTS, KNOWN, REMAINS = 10, 30, 0.8
#: A shift is larger than the standard deviation of its size by noise like that before, times this.
BEYOND = 11.0
_MOST_ALIKE = 0.99


@dataclass(frozen=True, slots=True)
class Found:
    """A change in a series of logarithms.

    ``at`` is the number of the first value since a shift; of a drift 0.  ``before`` and ``after``
    are the levels, of a drift at its two ends.
    """

    drift: bool
    at: int
    before: float
    after: float


def change_in(values: Sequence[float], fewest_drift: int = FEWEST_DRIFT) -> Found | None:
    """Return the change in at most some hundred values, or None.

    Args:
        fewest_drift: fewer values are no drift.
    """
    m = len(values)
    if m < FEWEST_BEFORE + FEWEST_SINCE:
        return None
    if max(values) - min(values) < LEAST:
        return None
    shift, line = _shift(values), _line(values) if m >= fewest_drift else None
    if line is not None and (shift is None or line[1] < shift[1]):
        return line[0]
    return None if shift is None else shift[0]


def _shift(values: Sequence[float]) -> tuple[Found, float] | None:
    m = len(values)
    sums = list(accumulate(values, initial=0.0))
    whole = sums[m]
    mean = whole / m
    spread = sum((v - mean) ** 2 for v in values)

    def between(k: int) -> float:
        return (sums[k] / k - (whole - sums[k]) / (m - k)) ** 2 * k * (m - k) / m

    at = max(range(FEWEST_BEFORE, m - FEWEST_SINCE + 1), key=between)
    before, after = sums[at] / at, (whole - sums[at]) / (m - at)
    left = max(0.0, spread - between(at))
    if not _is_far(before, after):
        return None
    residuals = [v - (before if i < at else after) for i, v in enumerate(values)]
    t = _t(between(at), left, m - 2, residuals)
    r = max(0.0, first_autocorrelation(values[:at]))
    wander = (max(values[:at]) - min(values[:at])) * (1 + FEW * r * r / at)
    if abs(after - before) < WANDER * wander or not _separate(values[:at], values[at:]):
        return None
    if t < _limit(m - 2):
        return None
    return Found(False, at, before, after), left


def _line(values: Sequence[float]) -> tuple[Found, float] | None:
    m = len(values)
    mean, middle = math.fsum(values) / m, (m - 1) / 2
    squares = m * (m * m - 1) / 12
    slope = math.fsum((i - middle) * v for i, v in enumerate(values)) / squares
    before, after = mean - slope * middle, mean + slope * middle
    if not _is_far(before, after):
        return None
    residuals = _without_line(values)
    left = math.fsum(r * r for r in residuals)
    third = m // 3
    parts = values[:third], values[third : 2 * third], values[m - third :]
    if slope < 0:
        parts = parts[::-1]
    ordered = _separate(parts[0], parts[1], 0.25) and _separate(parts[1], parts[2], 0.25)
    t = _t(slope * slope * squares, left, m - 2, residuals)
    wander = max(residuals) - min(residuals)
    if t < _limit(m - 2) or not ordered or abs(after - before) < STEADY * wander:
        return None
    return Found(True, 0, before, after), left


def _without_mean(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / max(1, len(values))
    return [v - mean for v in values]


def _without_line(values: Sequence[float]) -> list[float]:
    m = len(values)
    mean, middle = math.fsum(values) / m, (m - 1) / 2
    slope = 12 * math.fsum((i - middle) * v for i, v in enumerate(values)) / (m * (m * m - 1))
    return [v - mean - slope * (i - middle) for i, v in enumerate(values)]


def _t(explained: float, left: float, df: int, residuals: Sequence[float]) -> float:
    """Return t of a model that explains a part of the sum of squares, of which ``left`` is left."""
    if left <= 1e-12 * explained:
        return math.inf
    r = max(TOGETHER, first_autocorrelation(residuals))
    return math.sqrt(explained / (left / df) * (1 - r) / (1 + r))


def _is_far(before: float, after: float) -> bool:
    return abs(after - before) >= math.log1p(LEAST)


def _separate(before: Sequence[float], since: Sequence[float], edge: float = _EDGE) -> bool:
    """Return whether nearly all values of one side are beyond nearly all of the other."""
    a, b = sorted(before), sorted(since)
    x, y = int(edge * len(a)), int(edge * len(b))
    return a[-1 - x] < b[y] or b[-1 - y] < a[x]


@cache
def _limit(df: int) -> float:
    return critical(1 - CHANCE, df)


class Watch:
    """A series under way, in several resolutions.

    Each value but the first resolution's is the mean of two values of the one before.

    Args:
        beyond: see :data:`BEYOND`; 0: the values come at times that are no noise.
    """

    #: Resolutions, and values that are kept of each.
    RESOLUTIONS, KEPT = 12, 64

    def __init__(self, beyond: float = BEYOND) -> None:
        self._beyond = beyond
        #: Number of values.
        self.count = 0
        self._values: list[list[float]] = [[] for _ in range(self.RESOLUTIONS)]

    def add(self, value: float) -> tuple[Found, int] | None:
        """Add a value; return a change, and how many values ago it was (drifts: began)."""
        self.count += 1
        self._keep(0, value)
        change = None
        for level in range(1, self.RESOLUTIONS):
            if self.count % (1 << level):
                break
            a, b = self._values[level - 1][-2:]
            self._keep(level, (a + b) / 2)
            change = change or self._change(level)
        return change

    def _change(self, level: int) -> tuple[Found, int] | None:
        values = self._values[level]
        found = change_in(values)
        if found is None:
            return None
        ago = (len(values) - found.at) << level
        if not found.drift and not (self._is_in_most(found, level) and self._lasts(found, ago)):
            return None
        if abs(found.after - found.before) < self._beyond * self._noise(ago, found.drift):
            return None
        if not self._is_new(found, ago):
            return None
        return found, ago if found.drift else self._refined(ago, level, found)

    def settle(self, ago: int, drift: bool) -> None:
        """Take a change ``ago`` values ago as known: the values before it get the level since then.

        So what is known of their variation remains.  ``drift``: the level changed evenly.
        """
        size = self._size(ago, drift)
        for level, values in enumerate(self._values):
            wide = 1 << level
            for i, value in enumerate(values):
                end = self.count % wide + (len(values) - 1 - i) * wide
                if drift:
                    part = min(1.0, (end + wide / 2) / ago)
                else:
                    part = min(1.0, max(0.0, (end + wide - ago) / wide))
                values[i] = value + size * part

    def _size(self, ago: int, drift: bool) -> float:
        """Return the size of a change, by the finest values that reach back far enough."""
        for level, values in enumerate(self._values):
            since = ago >> level
            reach = min(len(values), since + max(1, since, FEWEST_BEFORE))
            if since and (drift or len(values) > since) and reach < self.KEPT:
                break
        else:
            return 0.0
        if drift:
            third = max(1, min(since, len(values)) // 6)
            first, last = values[-since:][:third], values[-third:]
            size = math.fsum(last) / third - math.fsum(first) / third
            return size / (1 - third / max(since, third + 1))
        before = values[-reach:-since]
        if not before:
            return 0.0
        return median(values[-since:]) - median(before)

    def _keep(self, level: int, value: float) -> None:
        values = self._values[level]
        values.append(value)
        if len(values) > self.KEPT:
            del values[0]

    def _is_new(self, found: Found, ago: int) -> bool:
        """Return whether means over the same and longer times never differed nearly as much before.

        The largest and the smallest one do not count.
        """
        most = 0.0
        for level in range(1, self.RESOLUTIONS):
            values = self._values[level]
            since = -((self.count % (1 << level) - ago) >> level)  # that began since the change
            before = sorted(values[: len(values) - since] if since > 0 else values)
            if len(before) > FEWEST_BEFORE:
                most = max(most, before[-2] - before[1])
        return abs(found.after - found.before) >= (STEADY if found.drift else WANDER) * most

    def _is_in_most(self, found: Found, level: int) -> bool:
        """Return whether the values of a finer resolution show the shift, too."""
        since = len(self._values[level]) - found.at
        while level and since < _FINER:
            level, since = level - 1, 2 * since
        values = self._values[level]
        before = values[: len(values) - since]
        if len(before) < FEWEST_BEFORE:
            return False
        return _separate(before, values[len(values) - since :], _FINER_EDGE)

    def _lasts(self, found: Found, ago: int) -> bool:
        """Return whether a shift is old enough, and as large since half of its time as at first."""
        if ago < LASTS or max(ago, self.count - ago) < KNOWN:
            return False
        level = next(i for i in range(self.RESOLUTIONS) if ago >> i <= self.KEPT)
        values = self._values[level][-(ago >> level) :]
        newer = values[len(values) // 2 :]
        size = math.fsum(newer) / len(newer) - found.before
        return size / (found.after - found.before) >= REMAINS

    def _noise(self, ago: int, drift: bool) -> float:
        """Return the standard deviation that noise alone gives to the size of a change.

        A change ``ago`` finest values ago is taken out of the finest values, as far as those go.
        """
        level = 0 if drift else max(0, (2 * ago // self.KEPT).bit_length() - 1)
        values = self._values[level]
        since = min(len(values), ago) if drift else ago >> level
        before = len(values) - since
        if drift:
            residuals = _without_line(values)
        else:
            residuals = [*_without_mean(values[:before]), *_without_mean(values[before:])]
        variance = math.fsum(v * v for v in residuals) / max(1, len(values) - 2)
        r = min(_MOST_ALIKE, max(0.0, first_autocorrelation(residuals)))
        alike = (1 + r) / (1 - r)
        if drift:
            return math.sqrt(variance * min(1.0, 12 * alike / ago))
        return math.sqrt(variance * sum(min(1.0, alike / n) for n in (since, before) if n))

    def _refined(self, ago: int, level: int, found: Found) -> int:
        """Return how many values ago the level changed, to one value if those are kept."""
        fine, middle = self._values[0], (found.before + found.after) / 2
        near = range(max(1, ago - (1 << level)), min(len(fine), ago + (1 << level)) + 1)
        if ago + (1 << level) > len(fine):
            return ago
        rises = found.after > found.before

        def wrong(at: int) -> int:
            before, after = fine[-near[-1] : len(fine) - at], fine[len(fine) - at :]
            return sum((v > middle) == rises for v in before) + sum(
                (v > middle) != rises for v in after[: at - near[0] + 1]
            )

        return min(near, key=wrong)
