"""Keeps the run over time, from a thread of the extension: the training thread makes no call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from fastprof.clock import acquired, time
from fastprof.guards import own_errors
from fastprof.session.part import Part

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder
    from fastprof.session.faults import Faults
    from fastprof.session.history.segments import Segments
    from fastprof.snapshot import Snapshot

#: Seconds of a segment, and the fewest steps in it.
SEGMENT_S = 5.0
FEWEST_STEPS = 8
#: The end of the run waits this long for a segment that is being made.
_PATIENCE_S = 2.0
_NS_PER_S = 1e9


class History(Part):
    """The history of one run.

    Args:
        gpu: returns GPU memory in bytes: allocated, reserved; None: unknown.
    """

    kind = "history"

    def __init__(
        self,
        recorder: Recorder,
        gpu: Callable[[], tuple[int, int] | None],
        faults: Faults,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recorder = recorder
        self._gpu = gpu
        self._faults = faults
        self._clock = clock
        self._segments: Segments | None = None
        self._due = 0.0
        self._began_ns = 0
        self._on = False
        self._making = Lock()

    def begin(self) -> None:
        """Begin the first segment."""
        self._on = True
        self._began_ns = time.perf_counter_ns()
        self._due = self._clock() + SEGMENT_S

    def called(self) -> int | None:
        """Make a segment if it is time; return after how many ns to call this again.

        The thread of the extension calls it.
        """
        if not self._on:
            return None
        now = self._clock()
        if now >= self._due:
            self._due = now + SEGMENT_S
            self._take(FEWEST_STEPS)
        return max(1, int((self._due - now) * _NS_PER_S))

    def _take(self, fewest: int) -> None:
        if not self._making.acquire(blocking=False):
            return
        try:
            if self._segments is None:
                from fastprof.session.history.segments import Segments

                self._segments = Segments(self._recorder, self._gpu, self._began_ns)
            self._segments.take(fewest)
        except own_errors() as error:  # the run goes on without
            self._on = False
            self._faults.add("history_errors", "The run is no longer kept over time", error)
        finally:
            self._making.release()

    def end(self, count: int) -> None:
        """Make the last segment, if there were others: it needs some steps."""
        if self._on and self._segments is not None:
            self._take(1)
        self._on = False

    def forget(self) -> None:
        """Do nothing any more, in a forked child."""
        self._on = False
        self._segments = None
        self._making = Lock()

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        if self._segments is None or not acquired(self._making, _PATIENCE_S):
            return snapshot
        try:
            keys, history = self._segments.history(snapshot.keys)
        finally:
            self._making.release()
        return snapshot if history is None else replace(snapshot, keys=keys, history=history)
