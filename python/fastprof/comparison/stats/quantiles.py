"""Differences of medians and other quantiles, with intervals.

A quantile's interval is Woodruff's (Journal of the American Statistical Association 47, 1952): it
takes the interval of the *fraction* of steps below the quantile, and the values at the ends of that
interval.  The fraction is a mean of ones and zeros, so its variance comes from its blocks, as for
any mean here.  Zou's and Donner's method of variance estimates recovery (Statistics in Medicine 27,
2008) combines two such intervals into the interval of a difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.comparison.stats.blocks import Blocks, block_means, variance_of_mean
from fastprof.report.student import critical

#: At least this many blocks' worth of steps must lie beyond a quantile, else it is unknown.
_BEYOND = 2


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate between ``low`` and ``high``; None: too few steps."""

    estimate: float
    low: float | None
    high: float | None


def quantile(values: Sequence[float], q: float, blocks: Blocks, level: float) -> Interval:
    """Return the ``q`` quantile (0..1) of a series, like ``numpy.percentile``."""
    ordered = sorted(values)
    n = len(ordered)
    estimate = _at(ordered, q)
    if min(q, 1 - q) * n < _BEYOND * blocks.length or not blocks.enough:
        return Interval(estimate, None, None)
    means = block_means([float(v <= estimate) for v in values], blocks.length)
    variance = max(variance_of_mean(means, blocks), q * (1 - q) / n)
    reach = critical(level, n / blocks.length - 1) * math.sqrt(variance)
    if q - reach < 0 or q + reach > 1:
        return Interval(estimate, None, None)
    return Interval(estimate, _at(ordered, q - reach), _at(ordered, q + reach))


def difference(before: Interval, after: Interval) -> Interval:
    """Return after minus before."""
    estimate = after.estimate - before.estimate
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return Interval(estimate, None, None)
    down = math.hypot(after.estimate - after.low, before.high - before.estimate)
    up = math.hypot(after.high - after.estimate, before.estimate - before.low)
    return Interval(estimate, estimate - down, estimate + up)


def _at(ordered: Sequence[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    below = min(int(position), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
