"""Whether a series of means over time has changed: a shift since some moment, or a drift.

The values are means of many steps, all over the same time, as logarithms.  A *shift* is the split
into two levels with the largest t; a *drift* a straight line.  The one with the smaller residuals
is named.  t is divided by the square root of (1 + r) / (1 - r), where r is the autocorrelation of
the residuals, without its bias and a standard error higher (:mod:`~.blocks`): neighbouring values
resemble each other.

**False alarms.**  A run is tested at each new value, at every split, in several resolutions, on two
signals: less than 1.5 million tests in 1,000 hours of segments of 5 s, of up to 54 splits.
:data:`CHANCE` is the probability of each, so at most 0.8 alarms are expected if values are normal.
Heavy tails and slow parts are not, so three rules need no distribution: the levels differ by
:data:`LEAST`, and by more than the values before differ from each other (:data:`WANDER`), and most
finer values since the change are beyond most before.  ``tests/unit/test_changes_of_steps.py``
counts the alarms in simulated runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from fastprof.comparison.stats.blocks import first_autocorrelation
from fastprof.report.student import critical

#: Probability of a false alarm in one test.
CHANCE = 1e-8
#: Smaller changes, as a part of the level before, are none.
LEAST = 0.04
#: Values before a shift, and since then; values of a drift.
FEWEST_BEFORE, FEWEST_SINCE, FEWEST_DRIFT = 8, 2, 24
_EDGE = 0.1
#: A change is larger than that by which the values differ otherwise, times this.
WANDER = 1.25
#: Autocorrelation of neighbouring values that is assumed, even if they do not show it: few values
#: show too little of a slow part.
TOGETHER = 0.5
#: Finer values since a shift, of which three of four must be beyond three of four before: means may
#: be large because of one value.
_FINER, _FINER_EDGE = 8, 0.25


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


def change_in(values: Sequence[float]) -> Found | None:
    """Return the change in at most some hundred values, or None."""
    m = len(values)
    if m < FEWEST_BEFORE + FEWEST_SINCE:
        return None
    if max(values) - min(values) < LEAST:
        return None
    shift, line = _shift(values), _line(values) if m >= FEWEST_DRIFT else None
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
    wander = max(values[:at]) - min(values[:at])
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
    residuals = [v - mean - slope * (i - middle) for i, v in enumerate(values)]
    left = math.fsum(r * r for r in residuals)
    third = m // 3
    parts = values[:third], values[third : 2 * third], values[m - third :]
    if slope < 0:
        parts = parts[::-1]
    ordered = _separate(parts[0], parts[1], 0.25) and _separate(parts[1], parts[2], 0.25)
    t = _t(slope * slope * squares, left, m - 2, residuals)
    wander = max(residuals) - min(residuals)
    if t < _limit(m - 2) or not ordered or abs(after - before) < WANDER * wander:
        return None
    return Found(True, 0, before, after), left


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
    """A series under way, in several resolutions; a change begins it anew.

    Each value but the first resolution's is the mean of two values of the one before.
    """

    #: Resolutions, and values that are kept of each.
    RESOLUTIONS, KEPT = 12, 64

    def __init__(self) -> None:
        #: Number of values since the last change.
        self.count = 0
        self._values: list[list[float]] = [[] for _ in range(self.RESOLUTIONS)]

    def add(self, value: float) -> tuple[Found, int] | None:
        """Add a value; return a change, and how many values ago it was (drifts: began)."""
        self.count += 1
        self._keep(0, value)
        for level in range(1, self.RESOLUTIONS):
            if self.count % (1 << level):
                return None
            a, b = self._values[level - 1][-2:]
            self._keep(level, (a + b) / 2)
            values = self._values[level]
            found = change_in(values)
            if found is not None and (found.drift or self._is_in_most(found, level)):
                ago = (len(values) - found.at) << level
                if not found.drift:
                    ago = self._refined(ago, level, found)
                return found, ago
        return None

    def restart(self, since: int) -> None:
        """Begin anew with the last ``since`` values."""
        kept = self._values[0][-since:] if since else []
        self.count = 0
        self._values = [[] for _ in range(self.RESOLUTIONS)]
        for value in kept:
            self.add(value)

    def _keep(self, level: int, value: float) -> None:
        values = self._values[level]
        values.append(value)
        if len(values) > self.KEPT:
            del values[0]

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
