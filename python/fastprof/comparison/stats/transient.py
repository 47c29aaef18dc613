"""Finds the point where a run has settled: early steps may differ from the rest.

A recording leaves out its first steps (``skip_first``), but caches, compilers and clocks may take
longer.  The series is cut into :data:`PARTS` parts.  Its second half defines what is normal: the
median of its parts' medians, and their spread (1.4826 times the median distance, which is the
standard deviation for normal values).  Parts at the beginning are left out up to the first one
whose median is at most :data:`FAR` times that spread, or at most 1 %, away.  Medians prevent single
slow steps at the beginning from counting as warm-up, which would favour one side.  At most half of
the series is left out; a run that has not settled by then does not settle.
"""

from collections.abc import Sequence
from statistics import median

PARTS = 20
#: Fewest steps per part; a shorter series is used whole.
SMALLEST = 5
FAR = 5.0
_NEVER_LESS = 0.01


def transient(values: Sequence[float]) -> int | None:
    """Return how many values at the beginning to leave out; None: it does not settle."""
    n = len(values)
    size = max(SMALLEST, n // PARTS)
    if n < 8 * SMALLEST:
        return 0
    medians = [median(values[i : i + size]) for i in range(0, n - size + 1, size)]
    settled = medians[len(medians) // 2 :]
    normal = median(settled)
    spread = 1.4826 * median(abs(m - normal) for m in settled)
    far = max(FAR * spread, _NEVER_LESS * abs(normal))
    for i, value in enumerate(medians[: len(medians) // 2]):
        if abs(value - normal) <= far:
            return i * size
    return None
