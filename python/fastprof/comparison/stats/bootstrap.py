"""The difference of two means with an interval, by a studentized circular block bootstrap.

Each side is drawn anew from its own blocks of neighbouring steps, many times.  Every draw
gives a difference over its own standard error, and how far that strays from 0 when there is
no difference is the yardstick for the real one (Hall, "The Bootstrap and Edgeworth
Expansion", 1992; for blocks: Goetze and Kuensch, Annals of Statistics 24, 1996).  A draw
needs one addition per block and not per step.
"""

from __future__ import annotations

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
    """``estimate`` is after less before, between ``low`` and ``high`` at the level asked for.

    ``p`` is how often sides that differ by no more than the margin differ at least as much;
    ``error`` the standard error, ``limit`` how many of it the interval extends to each side.
    """

    estimate: float
    error: float
    low: float
    high: float
    p: float
    limit: float


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
        before, after: the values, in the order in which they came.
        blocks: how each is cut, with enough blocks.
        level: of the interval, e.g. 0.95.
        seed: the same values and seed give the same result.
        margin: a difference that counts as none.
        draws: how many times to draw.
    """
    sides = [block_means(v, b.length) for v, b in zip((before, after), blocks, strict=True)]
    middles = [math.fsum(v) / len(v) for v in (before, after)]
    estimate = middles[1] - middles[0]
    beyond = max(0.0, abs(estimate) - margin)
    scale = max(map(abs, middles))
    error = math.sqrt(sum(variance_of_mean(m, b) for m, b in zip(sides, blocks, strict=True)))
    if error <= 1e-12 * scale:  # constant but for rounding
        p = 1.0 if beyond <= 1e-9 * scale else 0.0
        return Difference(estimate, 0.0, estimate, estimate, p, 0.0)
    counts = [round(len(m) / b.length) for m, b in zip(sides, blocks, strict=True)]
    centred = [[x - middle for x in m] for m, middle in zip(sides, middles, strict=True)]
    strayed = _strayed(centred, counts, draws, random.Random(seed))
    as_far = draws - bisect_left(strayed, beyond / error)
    # Counted as p is, so that the interval excludes 0 where p is at most 1 - level.
    limit = strayed[min(draws - 1, math.ceil(level * (draws + 1)) - 1)]
    return Difference(
        estimate,
        error,
        estimate - limit * error,
        estimate + limit * error,
        (as_far + 1) / (draws + 1),
        limit,
    )


def _strayed(
    sides: Sequence[Sequence[float]], counts: Sequence[int], draws: int, source: random.Random
) -> list[float]:
    """How far off each drawn difference is, in its own standard errors; ascending."""
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
        # A draw that took one and the same block throughout has no error; it is as far
        # off as can be.
        found.append(abs(mean_y - mean_x) / math.sqrt(variance) if variance > 0 else math.inf)
    found.sort()
    return found
