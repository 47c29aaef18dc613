"""Measures the time of fastprof's Python code in the program's loop."""

from _io import open as open_file  # the program may replace the builtin
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastprof.clock import time
from fastprof.guards import own_errors

clock = time.perf_counter_ns

#: Untimed cost of the hooks on torch, as a share of their timed cost: torch takes another path
#: through a module with hooks, and the calls of the hooks are outside of their clock readings.
#: Measured by `python benchmarks/auto_sections.py` on 3.11: 0.9 to 1.2.
UNTIMED = 1.0

#: A hook takes some microseconds. If it took longer than this, the thread waited for a CPU
#: meanwhile, and so would the program have done (at a load of 11, one call in ten of those with
#: backward waited, for 5 to 20 ms).
_LONG_NS = 1_000_000


#: In plain steps, the hooks measure every so many steps: clock readings take a part of their time.
SAMPLED = 16


@dataclass(slots=True)
class OwnTime:
    """The sum over a run, for the training thread.

    Code that measures its own time notes :attr:`ns` and :attr:`apart_ns` when it begins, and
    calls :meth:`took` with them when it ends, so that nested measurements count once.
    """

    ns: int = 0
    #: Time inside that counts elsewhere, or for the program.
    apart_ns: int = 0
    #: The part of it that is timed as a whole: occasional work after a step.
    whole_ns: int = 0
    #: Time in which work after a step waited for files.
    blocked_ns: int = 0
    #: Ends of steps that were measured together with the code that made them.
    steps: int = 0
    #: How often the time of a hook on torch counts in this step; 0: it is not measured.
    samples: int = 1
    _times: int = 0

    @property
    def untimed_ns(self) -> int:
        """An estimate of the time of the hooks on torch outside :attr:`ns`."""
        return round(max(0, self.ns - self.whole_ns) * UNTIMED)

    def took(self, began: int, ns: int, apart_ns: int, samples: int = 1) -> None:
        """Count the time since ``began``; ``ns`` and ``apart_ns`` are the values at that time.

        ``samples``: how often it counts, but for what is measured inside.

        A time that is so long that the thread must have waited counts as the mean of the others.
        """
        taken = clock() - began - (self.apart_ns - apart_ns)
        if taken > _LONG_NS:
            others = max(0, ns - self.whole_ns)
            usual = others // self._times if self._times else 0
            taken = max(self.ns - ns, usual)  # what is measured inside remains
        if samples != 1:
            inside = self.ns - ns
            taken = inside + samples * max(0, taken - inside)
        self._times += samples
        self.ns = ns + taken if taken > 0 else ns

    def spent_ns(self) -> int:
        """Return the time that this thread has computed, or waited for fastprof's files."""
        return time.thread_time_ns() + self.blocked_ns

    def took_whole(self, began: int, ns: int, apart_ns: int, spent_ns: int) -> None:
        """Count occasional work of any length; ``spent_ns`` is its part of :meth:`spent_ns`."""
        taken = clock() - began - (self.apart_ns - apart_ns)
        self.ns = ns + max(0, min(taken, spent_ns))
        self.whole_ns += self.ns - ns

    @contextmanager
    def blocking(self) -> Iterator[None]:
        """Count the time in which the code inside waits, other than for a CPU."""
        began, cpu_ns, waited_ns = clock(), time.thread_time_ns(), _waited_ns()
        try:
            yield
        finally:
            cpu_ns, waited_ns = time.thread_time_ns() - cpu_ns, _waited_ns() - waited_ns
            self.blocked_ns += max(0, clock() - began - cpu_ns - waited_ns)


def _waited_ns() -> int:
    """Return how long this thread was ready to run and had no CPU; 0: unknown."""
    try:
        with open_file("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return int(file.read(64).split()[1])
    except own_errors(OSError, ValueError, IndexError):
        return 0
