"""Measures the time of fastprof's Python code in the program's loop."""

import time
from dataclasses import dataclass

clock = time.perf_counter_ns

#: Untimed cost of the hooks on torch, as a share of their timed cost: torch takes another path
#: through a module with hooks, and the calls of the hooks are outside of their clock readings.
#: Measured by `python benchmarks/auto_sections.py` on 3.11: 0.9 to 1.2.
UNTIMED = 1.0


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
    #: Ends of steps that were measured together with the code that made them.
    steps: int = 0

    @property
    def untimed_ns(self) -> int:
        """An estimate of the time of the hooks on torch beside :attr:`ns`."""
        return round(max(0, self.ns - self.whole_ns) * UNTIMED)

    def took(self, began: int, ns: int, apart_ns: int) -> None:
        """Count the time since ``began``; ``ns`` and ``apart_ns`` are the values at that time."""
        self.ns = ns + max(0, clock() - began - (self.apart_ns - apart_ns))
