"""Notices when a loop becomes another one: its steps take longer or shorter, or a stage begins."""

from array import array
from collections.abc import Callable
from statistics import median
from sys import maxsize

from fastprof.capture.options import Recorder
from fastprof.clock import time

#: Steps from one look at the last plain steps to the next, and how many of them are looked at: a
#: change is seen when it has more than half of these.
_EVERY, _LAST = 10, 9

#: Looks cost at most this part of the steps: those of short steps are rarer.  A look interrupts the
#: loop, which takes longer than the look.
_MAY_COST, _INTERRUPTS_NS = 0.001, 40_000

#: The level of step times has changed if their median is this many times as long, or the inverse.
_OTHER_LEVEL = 1.25

#: A run has at most this many changes; others are noise of the machine.
_MOST = 8


class Changes:
    """Compares the plain steps of one run with earlier ones; only the training thread calls it.

    Args:
        stage: returns the number of the run's current stage.
    """

    def __init__(self, recorder: Recorder, stage: Callable[[], int]) -> None:
        self._recorder = recorder
        self._stage = stage
        self._seen = stage()
        self._left = _MOST
        self._usual_ns = 0.0  # median of the steps to compare with; 0: unknown
        self._look_ns = 0  # what one look costs; 0: unknown
        #: Whether somebody asked for a window.
        self._asked = False
        #: Number of steps after which :meth:`are_there` is due.
        self.due = maxsize

    def plan(self, count: int) -> None:
        """Look at the plain steps that begin after ``count`` steps."""
        if self._left:
            cost_ns = self._look_ns + _INTERRUPTS_NS
            rarely = int(cost_ns / (_MAY_COST * self._usual_ns)) if self._usual_ns else 0
            self.due = count + max(_EVERY, rarely)

    def ask(self) -> None:
        """Let :meth:`are_there` find a change at the next look; any thread may call this."""
        self._asked = True

    def stop(self) -> None:
        """Look no more until :meth:`plan`."""
        self.due = maxsize

    def are_there(self, count: int) -> bool:
        """Return whether the loop has changed since the last look."""
        began, first = time.perf_counter_ns(), not self._usual_ns
        window = self._recorder.window(max(0, count - _LAST), True) or {}
        times = array("q", window.get("wall_ns", b""))
        waits = array("q", window.get("cpu_wait_ns", b"")) or (0,) * len(times)
        walls = [wall - wait for wall, wait in zip(times, waits, strict=True)]
        found, self._asked = self._asked or self._stage() != self._seen, False
        if len(walls) >= _LAST:
            now = median(walls)
            if self._usual_ns and now:
                found |= not 1 / _OTHER_LEVEL <= now / self._usual_ns <= _OTHER_LEVEL
            if found or not self._usual_ns:
                self._usual_ns = now
        self._seen = self._stage()
        self._left -= found
        if not first:  # which takes a hundred times as long
            look_ns = time.perf_counter_ns() - began
            self._look_ns = min(self._look_ns or look_ns, look_ns)
        self.plan(count) if self._left else self.stop()
        return found
