"""Makes occasional work rare in short steps: each interruption of a loop takes some 0.1 ms."""

from fastprof.clock import time

#: Until a run has made so many steps, the work is due as often as requested.
_AT_FIRST = 200

#: Later it is due again after this time at the earliest.
_LEAST_NS = 100_000_000


class Pace:
    """Numbers of steps after which the occasional work of one run is due, all of it at once.

    Args:
        every: steps between two of them, or a multiple of this.
    """

    def __init__(self, every: int) -> None:
        self._every = self._due = every
        self._last = (0, 0)  # count of steps and time when it was due

    def next_step(self, count: int) -> int:
        """Return the number of steps after which work is due, when ``count`` have ended."""
        if count >= self._due:
            before, before_ns = self._last
            now = time.perf_counter_ns()
            self._last = count, now
            steps = self._every
            if count >= _AT_FIRST and now > before_ns:
                steps = max(steps, _LEAST_NS * (count - before) // (now - before_ns))
            self._due = ((count + steps - 1) // self._every + 1) * self._every
        return self._due
