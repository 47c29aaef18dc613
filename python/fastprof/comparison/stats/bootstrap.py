"""The difference of two means with an interval, by a studentized circular block bootstrap.

Each side is drawn many times from its own blocks of neighbouring steps.  Every draw gives a
difference divided by its own standard error.  Its distance from 0 without a real difference is the
yardstick for the real one (Hall, "The Bootstrap and Edgeworth Expansion", 1992; for blocks: Goetze
and Kuensch, Annals of Statistics 24, 1996).  A draw needs one addition per block, not per step.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from fastprof.comparison.stats.blocks import Blocks, block_means, variance_of_mean

DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Difference:
    """``estimate`` is after minus before, between ``low`` and ``high`` at the given level.

    ``p`` is the probability of at least this difference between sides that differ by no more than
    the margin; ``error`` is the standard error, ``limit`` the interval's half width in standard
    errors; ``before_error`` is the standard error of the mean before.
    """

    estimate: float
    error: float
    low: float
    high: float
    p: float
    limit: float
    before_error: float = 0.0


def difference_of_means(
    before: Sequence[float],
    after: Sequence[float],
    blocks: tuple[Blocks, Blocks],
    *,
    level: float,
    seed: int,
    margin: float = 0.0,
    draws: int = DRAWS,
) -> Difference:
    """Return the difference of the means of two series.

    Args:
        blocks: the blocks of each, at least as many as needed.
        seed: the same values and seed give the same result.
        margin: the difference that counts as none.
    """
    sides = [block_means(v, b.length) for v, b in zip((before, after), blocks, strict=True)]
    middles = [math.fsum(v) / len(v) for v in (before, after)]
    estimate = middles[1] - middles[0]
    beyond = max(0.0, abs(estimate) - margin)
    scale = max(map(abs, middles))
    variances = [variance_of_mean(m, b) for m, b in zip(sides, blocks, strict=True)]
    error = math.sqrt(sum(variances))
    if error <= 1e-12 * scale:  # constant except for rounding
        p = 1.0 if beyond <= 1e-9 * scale else 0.0
        return Difference(estimate, 0.0, estimate, estimate, p, 0.0)
    counts = [round(len(m) / b.length) for m, b in zip(sides, blocks, strict=True)]
    centred = [[x - middle for x in m] for m, middle in zip(sides, middles, strict=True)]
    strayed = _strayed(centred, counts, draws, random.Random(seed))
    as_far = draws - bisect_left(strayed, beyond / error)
    # Counted like p, so that the interval excludes 0 if p is at most 1 - level.
    limit = strayed[min(draws - 1, math.ceil(level * (draws + 1)) - 1)]
    return Difference(
        estimate,
        error,
        estimate - limit * error,
        estimate + limit * error,
        (as_far + 1) / (draws + 1),
        limit,
        math.sqrt(variances[0]),
    )


def _strayed(
    sides: Sequence[Sequence[float]], counts: Sequence[int], draws: int, source: random.Random
) -> list[float]:
    """Return the distance of each drawn difference in its own standard errors; ascending."""
    before, after = sides
    n, m = counts
    choices = source.choices
    found = []
    for _ in range(draws):
        x = choices(before, k=n)
        y = choices(after, k=m)
        mean_x, mean_y = sum(x) / n, sum(y) / m
        square_x = sum(map(mul, x, x)) / n - mean_x * mean_x
        square_y = sum(map(mul, y, y)) / m - mean_y * mean_y
        variance = square_x / (n - 1) + square_y / (m - 1)
        # A draw of the same block throughout has no error; its distance is infinite.
        found.append(abs(mean_y - mean_x) / math.sqrt(variance) if variance > 0 else math.inf)
    found.sort()
    return found
