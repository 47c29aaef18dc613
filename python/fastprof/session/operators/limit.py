"""Limits the operators of a window, so that it does not stall the program.

torch.profiler takes about 20 us per event to finish, count and write a window.  So the number of
events is estimated in advance, from the nodes that autograd made in the last step, which torch
counts anyway.  A differentiable operator is recorded as 7 to 20 events: with the operators that it
calls, its backward, and its part in the optimizer's.  Few events per node mean a step of nothing
but operators, of 1 us each.
"""

import sys
from collections.abc import Callable

from fastprof.clock import time

#: Events recorded per node that autograd makes, in steps of small and of large operators.
_EVENTS_PER_NODE = (9, 20)
#: Time that an event adds to a step of small operators.
_SMALL_NS = 1000
#: Time that recording takes in the step itself, per event.
RECORDING_NS = 700


class EventLimit:
    """Estimates the events of steps.

    Args:
        most: the limit of a window's events; 0: no limit.
    """

    def __init__(self, most: int, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.most = most
        self._clock = clock
        self._began: tuple[int, int | None] | None = None
        self._known = 0  # events per step, counted in an earlier window
        self._used = 0
        #: Estimated events of the latest step; None: unknown.
        self.step: int | None = None

    def window_begins(self) -> None:
        """Start a new window, with no events so far."""
        self._used = 0

    def window_ended(self, events: int, steps: int) -> None:
        self._known = events // max(1, steps)

    def step_ended(self, *, recorded: bool) -> None:
        """Note the end of a step; ``recorded``: by torch.profiler."""
        began, self._began = self._began, None
        if began is None:
            return
        room = (self._clock() - began[0]) // _SMALL_NS
        nodes = _nodes_made()
        if nodes is None or began[1] is None:
            # This torch has no count, so every step may be recorded once.
            self.step = self._known or None
        else:
            low, high = (max(0, nodes - began[1]) * n for n in _EVENTS_PER_NODE)
            self.step = max(self._known, min(high, max(low, room)))
        if recorded:
            self._used += self.step or 0

    def step_begins(self) -> None:
        """Note the begin of a step whose end :meth:`step_ended` evaluates."""
        self._began = self._clock(), _nodes_made()

    def step_text(self) -> str:
        """Return the estimate for a reader."""
        return f"{float(f'{self.step or 0:.1e}'):,.0f}"

    def allows_another(self) -> bool:
        """Return whether the window still has room for a step like the last one."""
        return not self.most or self._used + (self.step or 0) <= self.most


def _nodes_made() -> int | None:
    """Return the number of nodes that autograd has made in this thread; None: unknown."""
    tell = getattr(sys.modules.get("torch.autograd"), "_get_sequence_nr", None)
    return None if tell is None else int(tell())
