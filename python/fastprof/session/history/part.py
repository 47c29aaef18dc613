"""Keeps the run over time, from a thread of the extension: the training thread makes no call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from fastprof.clock import acquired, time
from fastprof.guards import own_errors
from fastprof.session.part import Part
from fastprof.snapshot.run_phases import EVALUATING

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder
    from fastprof.session.faults import Faults
    from fastprof.session.history.passes import PassWatcher
    from fastprof.session.history.segments import Segments
    from fastprof.session.history.sides import Suspicion
    from fastprof.session.history.stalls import StallWatcher
    from fastprof.session.history.watcher import Watcher
    from fastprof.snapshot import Snapshot
    from fastprof.snapshot.history import Change, Segment
    from fastprof.snapshot.history_sums import Loading, Passes

#: Seconds of a segment, and the fewest steps in it.
SEGMENT_S = 5.0
FEWEST_STEPS = 8
#: A change is named without its function after this many segments.
_WAITS = 6
#: A run logs at most this many changes; all are in its report.
_MOST_SAID = 8
#: The end of the run waits this long for a segment that is being made.
_PATIENCE_S = 2.0
_NS_PER_S = 1e9


class History(Part):
    """The history of one run.

    Args:
        gpu: returns GPU memory in bytes: allocated, reserved; None: unknown.
        stage: returns the number of the run's current stage.
        ask_functions: lets the next window of functions open soon.
        loading: returns a number of the training loader, and what its workers did so far.
        passes: returns the numbers of passes of validation, and of checkpoints, so far.
    """

    kind = "history"

    def __init__(
        self,
        recorder: Recorder,
        gpu: Callable[[], tuple[int, int] | None],
        faults: Faults,
        stage: Callable[[], int] = lambda: 0,
        ask_functions: Callable[[], None] = lambda: None,
        loading: Callable[[], tuple[int, Loading | None]] = lambda: (-1, None),
        passes: Callable[[], Passes | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recorder = recorder
        self._gpu = gpu
        self._faults = faults
        self._stage = stage
        self._ask_functions = ask_functions
        self._loading = loading
        self._passes = passes
        self._clock = clock
        self._watcher: Watcher | None = None
        self._stalls: StallWatcher | None = None
        self._pass_watchers: Sequence[PassWatcher] = ()
        #: A change whose functions are not known yet, and for how many segments.
        self._open: Suspicion | None = None
        self._waited = 0
        self._said = 0
        self._texts: deque[str] = deque()  # for loggers, not taken yet
        self._change_percent = 0.0
        self._segments: Segments | None = None
        self._due = 0.0
        self._on = False
        self._making = Lock()

    def begin(self) -> None:
        """Begin the first segment.

        Modules are imported here, not while the first step runs.
        """
        from fastprof.session.history.meanwhile import Meanwhile
        from fastprof.session.history.passes import PassWatcher
        from fastprof.session.history.segments import Segments
        from fastprof.session.history.stalls import StallWatcher
        from fastprof.session.history.watcher import Watcher

        meanwhile = Meanwhile(self._recorder, self._loading, self._passes)
        self._segments = Segments(self._recorder, self._gpu, meanwhile, time.perf_counter_ns())
        self._watcher, self._stalls = Watcher(), StallWatcher()
        self._pass_watchers = [PassWatcher(phase) for phase in EVALUATING]
        self._on = True
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

    def _take(self, fewest: int, patience_s: float = 0.0) -> None:
        if not acquired(self._making, patience_s):
            return
        try:
            segments, watcher = self._segments, self._watcher
            made = None if segments is None else segments.take(fewest)
            if segments is not None and watcher is not None and made is not None:
                self._look(made, segments, watcher)
                self._look_aside(made, segments)
        except own_errors() as error:  # the run goes on without
            self._on = False
            self._faults.add("history_errors", "The run is no longer kept over time", error)
        finally:
            self._making.release()

    def _look(self, made: Segment, segments: Segments, watcher: Watcher) -> None:
        from fastprof.session.history.explain import is_named, needs_functions

        found = watcher.add(made, self._stage())
        waiting = self._open
        if found is None and waiting is not None:
            found = replace(waiting, since=(*waiting.since, made))
        if found is None or not is_named(found, segments.sections):
            self._open = None
            return
        if waiting is None or found.first != waiting.first:
            self._waited = 0
        self._open = found
        if needs_functions(found) and self._waited < _WAITS:
            self._waited += 1
            self._ask_functions()
            return
        self._open = None
        change = segments.explained(found)
        self._change_percent = 100.0 * (change.after_ns / max(1, change.before_ns) - 1)
        self._say(change)

    def _look_aside(self, made: Segment, segments: Segments) -> None:
        """Look for changes of what is in no usual step: long steps, validation, checkpoints."""
        stage = self._stage()
        found = None if self._stalls is None else self._stalls.add(made, stage)
        if found is not None:
            self._say(segments.explained_stalls(found))
        for watcher in self._pass_watchers:
            lasting = watcher.add(made, stage)
            if lasting is not None:
                self._say(segments.explained_passes(lasting))

    def _say(self, change: Change) -> None:
        # Of stalls the means are no measure: those of one side may be of steps without functions.
        is_longer = change.kind == "stalls" or change.after_ns > change.before_ns
        if is_longer and self._said < _MOST_SAID:
            self._said += 1
            self._texts.append(change.text)
            self._faults.log(f"fastprof: {change.text}")

    def metrics(self) -> Mapping[str, float]:
        """Return the last change of the step time; nothing while none can be found."""
        if self._watcher is None or not (self._watcher.knows or self._change_percent):
            return {}
        return {"profile/train/step_ms_change_percent": self._change_percent}

    def texts(self) -> Iterator[str]:
        """Yield the changes that were logged since the last call."""
        while self._texts:
            yield self._texts.popleft()

    def end(self, count: int) -> None:
        """Make the last segment, if there were others: it needs some steps."""
        if self._on and self._segments is not None and self._segments.segments:
            self._take(1, _PATIENCE_S)
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
