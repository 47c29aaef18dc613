"""Statistics of durations from the recorder's data: histograms, sums, recent values."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from fastprof.snapshot import Histogram

#: The quantiles of rows: p50, p95 and p99.
QUANTILES = (0.50, 0.95, 0.99)

#: Something is rarer in some steps if it happens in fewer of them than this part of what others
#: have, by more than this many standard deviations.
_RARER, _CHANCE = 0.97, 3.0


def merge_histograms(parts: Iterable[Histogram]) -> Histogram:
    """Add histograms with the same bucket layout, which all threads of a process have."""
    counts: dict[tuple[int, int], int] = {}
    for part in parts:
        for low, high, count in part.rows:
            counts[(low, high)] = counts.get((low, high), 0) + count
    return Histogram(tuple((low, high, n) for (low, high), n in sorted(counts.items())))


def histogram_quantiles(
    hist: Histogram, quantiles: Sequence[float], *, low: int, high: int
) -> tuple[float | None, ...]:
    """Return quantiles (0..1) in ns, interpolated between ranks as ``numpy.percentile`` does.

    Each rank's value is its bucket's middle, within 0.8 % of the truth, kept inside the
    known extremes ``low`` and ``high`` (ns).  An empty histogram gives ``None``.
    """
    rows = [row for row in hist.rows if row[2] > 0]
    if not rows:
        return (None,) * len(quantiles)
    ends = list(accumulate(count for _, _, count in rows))
    total = ends[-1]

    def value_at(rank: int) -> float:
        if rank == 0:
            return float(low)
        if rank == total - 1:
            return float(high)
        bucket_low, bucket_high, _ = rows[bisect_right(ends, rank)]
        # A bucket holds the integers low .. high - 1.
        return min(max((bucket_low + bucket_high - 1) / 2, low), high)

    return tuple(_interpolate(q * (total - 1), value_at, total) for q in quantiles)


def exact_quantiles(
    values: Sequence[float], quantiles: Sequence[float]
) -> tuple[float | None, ...]:
    """Return the same from the values themselves, without the bucket error."""
    if not values:
        return (None,) * len(quantiles)
    ordered = sorted(values)
    return tuple(
        _interpolate(q * (len(ordered) - 1), lambda rank: float(ordered[rank]), len(ordered))
        for q in quantiles
    )


def _interpolate(position: float, value_at: Callable[[int], float], total: int) -> float:
    below = min(int(position), total - 1)
    above = min(below + 1, total - 1)
    first = value_at(below)
    return first + (position - below) * (value_at(above) - first)


def coefficient_of_variation(count: int, sum_ns: int, sum_sq_s2: float) -> float | None:
    """Return standard deviation over mean; None: fewer than 2 values, or a mean of 0."""
    if count < 2 or sum_ns <= 0:
        return None
    mean_s = sum_ns / count / 1e9
    variance = max(0.0, sum_sq_s2 / count - mean_s * mean_s)
    return math.sqrt(variance) / mean_s


def rarer(here: Mapping[str, int], n: int, there: Mapping[str, int], of: int) -> frozenset[str]:
    """Return the names of what happens in fewer steps here than there, by more than chance.

    A section of every 50th step runs in more or fewer of either kind by chance.

    Args:
        here, there: the number of steps with it, by name.
        n, of: number of all steps here and there.
    """
    n, of = max(1, n), max(1, of)

    def least(steps: int) -> float:
        part = min(1.0, steps / of)
        return n * (_RARER * part - _CHANCE * math.sqrt(part * (1.0 - part) * (1 / n + 1 / of)))

    return frozenset(name for name, steps in there.items() if here.get(name, 0) < least(steps))
