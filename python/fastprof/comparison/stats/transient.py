"""Where a run has settled: steps at its beginning that are unlike the rest.

A recording leaves out its first steps (``skip_first``), but caches, compilers and clocks may
take longer.  The series is cut into :data:`PARTS` parts.  Its second half says what is normal:
the median of its parts' medians, and how far they stray (1.4826 times the median distance,
which is the standard deviation for normal values).  Parts at the beginning whose median is more
than :data:`FAR` times as far off, and by more than 1 %, are left out: up to the first part that
is not.  Medians, so that single slow steps at the beginning are not taken for warm-up and left
out to the advantage of one side.  At most half of the series is left out; a run that has not
settled by then is said not to settle.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

PARTS = 20
#: Steps per part at least; a shorter series is taken as it is.
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
