"""The variance of the mean of a series that is too short for its dependence.

Where :mod:`~.blocks` finds fewer than 8 blocks of the necessary length, the series is cut into 8
batches, and the variance of its mean is that of the batches' means over 8 (Schmeiser, "Batch size
effects in the analysis of simulation output", Operations Research 30, 1982), for Student's t with 7
degrees of freedom.  Such batches may still depend on each other, so it is raised by the larger of
two factors:

- What a first-order autoregressive series lacks in such batches.  Its autocorrelation is the
  observed one without bias and one standard error higher; of the steps, of the means of every two
  steps, of four, and so on to 24 means, whichever gives most: noise of single steps hides a slow
  part.
- :data:`TOGETHER` over the steps of a batch, as if only so many steps together were independent of
  the next.  Few steps cannot show a slow part, so it is assumed.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from fastprof.comparison.stats.blocks import first_autocorrelation

BATCHES = 8
#: Steps of the shortest series: with 20, strongly dependent ones (0.98) give 6 % of false alarms.
FEWEST_STEPS = 3 * BATCHES
#: Steps that are taken to depend on each other, even if they do not show it.
TOGETHER = 64


def variance_of_mean(values: Sequence[float]) -> float:
    """Return the variance of the mean of at least :data:`FEWEST_STEPS` values, rather too large."""
    means = _means(values, BATCHES)
    middle = math.fsum(means) / BATCHES
    variance = math.fsum((m - middle) ** 2 for m in means) / (BATCHES - 1)
    return variance / BATCHES * max(TOGETHER * BATCHES / len(values), _lack(values))


def _lack(values: Sequence[float]) -> float:
    """Return the factor for the dependence that the values show; at least 1."""
    most, parts = 1.0, len(values)
    while True:
        r = first_autocorrelation(_means(values, parts))
        if r > 0:
            whole, batch = _variance(r, parts), _variance(r, parts / BATCHES)
            most = max(most, whole * (BATCHES - 1) / (batch - whole))
        if parts == FEWEST_STEPS:
            return most
        parts = max(parts // 2, FEWEST_STEPS)


def _variance(r: float, n: float) -> float:
    """Return the variance of the mean of ``n`` values of variance 1 and autocorrelations r**k."""
    return ((1 + r) / (1 - r) - 2 * r * (1 - math.pow(r, n)) / (n * (1 - r) ** 2)) / n


def _means(values: Sequence[float], parts: int) -> list[float]:
    ends = [i * len(values) // parts for i in range(parts + 1)]
    return [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(ends)]
