"""Time that fastprof's Python code takes in the program's loop, measured where it runs."""

from __future__ import annotations

import time

clock = time.perf_counter_ns


class OwnTime:
    """The sum over a run, of the training thread.

    Code that measures its own time notes :attr:`ns` and :attr:`apart_ns` when it begins, and
    calls :meth:`took` with them when it ends: what was counted in between is counted once.
    """

    __slots__ = ("apart_ns", "ns", "steps")

    def __init__(self) -> None:
        self.ns = 0
        #: Time inside that is counted elsewhere, or is the program's.
        self.apart_ns = 0
        #: Ends of steps that were measured with what made them.
        self.steps = 0

    def took(self, began: int, ns: int, apart_ns: int) -> None:
        """Count the time since ``began``, with both figures as they were then."""
        self.ns = ns + max(0, clock() - began - (self.apart_ns - apart_ns))
