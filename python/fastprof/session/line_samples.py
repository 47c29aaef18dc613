"""Windows of a run's steps in which the training thread's lines are sampled."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fastprof.capture.lines import Lines, LineSampler
from fastprof.capture.options import Recorder
from fastprof.clock import time
from fastprof.report.origin import is_users
from fastprof.session.part import Part
from fastprof.snapshot import Key, Snapshot
from fastprof.snapshot.lines import MAX_LINES, LineSamples

_INTERVAL_NS = 1_000_000
#: Samples of a window of the run, which has at least this many steps if they are long.
_SAMPLES, _STEPS = 1000, 4
#: A window ends after this many times its planned duration: on a busy machine samples are late.
_LATE = 5
#: A window is followed by this many times its duration without one.
_REST = 20


class LineWindows(Part):
    """The windows of a run; only the training thread calls it.

    Args:
        wanted: whether functions are recorded.
        hindered: whether the steps from the first argument to the second are not like others.
        of_workers: returns the samples of loaders' workers.
    """

    kind = "line"
    between_steps = True

    def __init__(
        self,
        recorder: Recorder,
        wanted: Callable[[], bool],
        hindered: Callable[[int, int], bool],
        of_workers: Callable[[], Iterable[Lines]] = tuple,
    ) -> None:
        self._sampler = LineSampler(recorder)
        self._wanted = wanted
        self._hindered = hindered
        self._of_workers = of_workers
        self._began_ns: int | None = None  # of the open window
        self._not_before_ns = 0
        self._last: tuple[int, int] | None = None  # count of steps and time at the last look
        self._due = 1

    @property
    def found(self) -> Lines:
        """The samples of the windows that have ended."""
        return self._sampler.found

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        found = (self.found, *self._of_workers())
        return replace(snapshot, lines=line_rows(snapshot.keys, found))

    def next_step(self, count: int) -> int:
        return self._due if self._wanted() else sys.maxsize

    def at_step(self, count: int) -> None:
        """Begin or end a window after step number ``count``."""
        if count < self._due or not self._wanted():
            return
        now = time.perf_counter_ns()
        if self._began_ns is not None:
            if self._sampler.take(wait=False):
                self._not_before_ns = now + _REST * (now - self._began_ns)
                self._began_ns = None
        elif self._last is not None and now >= self._not_before_ns:
            step_ns = (now - self._last[1]) // (count - self._last[0])
            if not self._hindered(count, count + 1) and not self._begin(step_ns):
                self._due = sys.maxsize
                return
        self._last = count, now
        # Short steps are many, and each look takes some microseconds.
        self._due = count + 1 + count // 8

    def _begin(self, step_ns: int) -> bool:
        interval_ns = max(_INTERVAL_NS, _STEPS * step_ns // _SAMPLES)
        self._began_ns = time.perf_counter_ns()
        return self._sampler.begin(interval_ns, _LATE * _SAMPLES * interval_ns, _SAMPLES)

    def end(self, count: int = 0) -> None:
        """End the open window, at the end of the run."""
        self._due = sys.maxsize
        if self._began_ns is not None:
            self._began_ns = None
            self._sampler.take(wait=True)


def line_rows(keys: Sequence[Key], found: Iterable[Lines]) -> tuple[LineSamples, ...] | None:
    """Return the samples of the program's functions; None if there are none."""
    found = list(filter(None, found))
    if not found:
        return None
    numbers: dict[tuple[str, int, str], int] = {}
    for i, key in enumerate(keys):
        if is_users(key):
            numbers.setdefault((key.file, key.line, key.name), i)
    samples: dict[tuple[int, int], int] = {}
    for lines in found:
        for (file, first, name, line), n in lines.items():
            number = numbers.get((file, first, name))
            if number is not None:
                samples[number, line] = samples.get((number, line), 0) + n
    ranked = sorted(samples.items(), key=lambda item: (-item[1], item[0]))
    return tuple(LineSamples(*at, n) for at, n in ranked[:MAX_LINES]) or None
