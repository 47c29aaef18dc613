"""Blocks of neighbouring steps: their necessary length, and the variation of their means.

Neighbouring steps resemble each other (the clock frequency, a busy disk, another program on the
machine), so they are not independent values.  Means of long enough blocks nearly are.

**Length.**  Politis and White, "Automatic block-length selection for the dependent
bootstrap", Econometric Reviews 23 (2004), with the correction by Patton, Politis and White,
Econometric Reviews 28 (2009), for the circular block bootstrap: with autocovariances R(k)
and the flat-top weights w of bandwidth M::

    G = sum over |k| <= M of w(k / M) |k| R(k)
    g = sum over |k| <= M of w(k / M) R(k)
    length = (2 G**2 / (4/3 g**2)) ** (1/3) * n ** (1/3)

That length makes the *variance* most accurate.  For a test the bias matters more, so blocks are
twice as long, and the variance is raised by the part that blocks of that length still lack, G / g
over the length.  Short series show too little of their dependence: G / g is at least that of a
first-order autoregressive series, 2 r / (1 - r**2), whose r is the first autocorrelation without
its bias (Kendall, Biometrika 41, 1954) and one standard error higher.

Blocks have at least :data:`SHORTEST` steps and at least the square root of all steps, and are
longer still if there would be more than :data:`MOST` of them: 48 blocks are enough to know the
variance well (the interval is 3 % wider than with any number), effects slower than the
autocovariances show are inside a block, and the work does not grow with the number of steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

#: Most blocks of a series.
MOST = 48
#: Fewer blocks are too few to show their variation.
FEWEST = 8
#: Steps of the shortest block.
SHORTEST = 8
#: Steps of the shortest series that has enough blocks.
FEWEST_STEPS = FEWEST * SHORTEST


@dataclass(frozen=True, slots=True)
class Blocks:
    """How to cut a series: steps per block, and the factor for the variance of its mean.

    ``enough`` is False with fewer than :data:`FEWEST` such blocks; ``wanted`` is the number of
    steps that the series would need, if longer blocks of a longer series are taken into account.
    """

    length: int
    correction: float
    enough: bool
    wanted: int


def autocovariances(values: Sequence[float], lags: int) -> list[float]:
    """Return the autocovariances of lag 0 to ``lags`` (divided by n, not by n - k)."""
    n = len(values)
    mean = math.fsum(values) / n
    x = [value - mean for value in values]
    return [sum(map(mul, x, x[k:])) / n for k in range(lags + 1)]


def dependence(values: Sequence[float]) -> tuple[float, float]:
    """Return Politis' and White's block length (from 1 up), and G / g.

    (0, 0) for a constant series: there is nothing to estimate.
    """
    n = len(values)
    window = max(5, math.ceil(math.sqrt(math.log10(n))))
    most = math.ceil(math.sqrt(n)) + window
    covariance = autocovariances(values, min(most, n - 1))
    if covariance[0] <= 0:
        return 0.0, 0.0
    bandwidth = _bandwidth(covariance, window, 2 * math.sqrt(math.log10(n) / n))
    g, big_g = covariance[0], 0.0
    for k in range(1, min(bandwidth, len(covariance) - 1) + 1):
        weight = min(1.0, 2 * (1 - k / bandwidth))
        g += 2 * weight * covariance[k]
        big_g += 2 * weight * k * covariance[k]
    if g <= 0:  # the weights allow this for alternating series
        return 1.0, 0.0
    longest = min(3 * math.sqrt(n), n / 3)
    return max(1.0, min(longest, (1.5 * (big_g / g) ** 2 * n) ** (1 / 3))), big_g / g


def _bandwidth(covariance: Sequence[float], window: int, limit: float) -> int:
    """Return twice the lag before ``window`` consecutive autocorrelations within ``limit``."""
    quiet = 0
    for k in range(1, len(covariance)):
        quiet = 0 if abs(covariance[k]) >= limit * covariance[0] else quiet + 1
        if quiet == window:
            return max(1, 2 * (k - window))
    return len(covariance) - 1


def first_autocorrelation(values: Sequence[float]) -> float:
    """Return the first autocorrelation without its bias and a standard error higher, below 1."""
    n = len(values)
    variance, covariance = autocovariances(values, 1)
    if variance <= 0:
        return 0.0
    r = covariance / variance
    return min(0.99, r + (1 + 3 * r) / n + 1 / math.sqrt(n))


def _first_order(values: Sequence[float]) -> float:
    """Return G / g of a similar first-order autoregressive series, rather too large; at least 0."""
    r = first_autocorrelation(values)
    return 2 * r / (1 - r * r) if r > 0 else 0.0


def blocks_of(values: Sequence[float]) -> Blocks:
    """Return how to cut a series of at least 2 values into blocks."""
    n = len(values)
    length, ratio = dependence(values)
    first = _first_order(values)
    steps = math.ceil(2 * length) if length > 1 else 1
    if ratio < 0:
        # Alternating values: short blocks vary more than they should, which is safe.
        steps = min(steps, n // FEWEST)
    elif first > ratio:
        steps = max(steps, math.ceil((1.5 * first * first * n) ** (1 / 3)))
    steps = max(steps, SHORTEST, math.isqrt(n), math.ceil(n / MOST))
    correction = 1 + max(0.0, ratio, first) / steps
    needed = steps * FEWEST
    # The length grows with the third root of n.
    wanted = max(FEWEST_STEPS, math.ceil(needed * math.sqrt(max(1.0, needed / n))))
    return Blocks(steps, correction, needed <= n, wanted)


def block_means(values: Sequence[float], length: int) -> list[float]:
    """Return the means of all n circular blocks, one for each starting value."""
    sums = list(accumulate(values, initial=0.0))
    n = len(values)
    total = sums[n]
    inside = [(b - a) / length for a, b in zip(sums, sums[length:], strict=False)]
    wrapped = [(total - sums[i] + sums[i + length - n]) / length for i in range(n - length + 1, n)]
    return inside + wrapped


def variance_of_mean(means: Sequence[float], blocks: Blocks) -> float:
    """Return the variance of the mean of the series, of which ``means`` are all blocks.

    It equals the circular block bootstrap's without drawing: the mean of n / length blocks drawn at
    random; corrected for the bias of the estimated mean, and for the length.
    """
    n = len(means)
    middle = math.fsum(means) / n
    spread = math.fsum((m - middle) ** 2 for m in means) / n
    return spread / (n / blocks.length - 1) * blocks.correction
