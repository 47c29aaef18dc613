"""Time that fastprof's Python code takes in the program's loop, measured where it runs."""

from __future__ import annotations

import time

clock = time.perf_counter_ns

#: What the hooks on torch take beside what they time, as a part of that: torch takes another way
#: through a module that has hooks, and the calls of the hooks are outside of their clock readings.
#: Measured by `python benchmarks/auto_sections.py` on 3.11: 0.9 to 1.2.
UNTIMED = 1.0


class OwnTime:
    """The sum over a run, of the training thread.

    Code that measures its own time notes :attr:`ns` and :attr:`apart_ns` when it begins, and
    calls :meth:`took` with them when it ends: what was counted in between is counted once.
    """

    __slots__ = ("apart_ns", "ns", "steps", "whole_ns")

    def __init__(self) -> None:
        self.ns = 0
        #: Time inside that is counted elsewhere, or is the program's.
        self.apart_ns = 0
        #: The part of it that is timed as a whole: what is done now and then after a step.
        self.whole_ns = 0
        #: Ends of steps that were measured with what made them.
        self.steps = 0

    @property
    def untimed_ns(self) -> int:
        """An estimate of what the hooks on torch took beside :attr:`ns`."""
        return round(max(0, self.ns - self.whole_ns) * UNTIMED)

    def took(self, began: int, ns: int, apart_ns: int) -> None:
        """Count the time since ``began``, with both figures as they were then."""
        self.ns = ns + max(0, clock() - began - (self.apart_ns - apart_ns))
