"""The trace of a run: its windows, its contents, its files."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastprof.capture.convert import thread_names
from fastprof.capture.options import Recorder, check_float, check_int
from fastprof.fileio import resolve_directory
from fastprof.results.report import Report
from fastprof.session.part import Part
from fastprof.session.schedule import RECORD_AND_SAVE, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """The limits and contents of a trace.

    Attributes:
        min_us: shorter calls of functions, in microseconds, are left out; sections and steps never
            are.
        max_events: most events kept, of all threads together, and most records of the GPU; newer
            ones then replace the oldest.  An event takes 32 bytes while recording, about 150 bytes
            in a trace and 15 in a compressed one.
        save_dir: directory for one file per window, ``rank{r}_trace.json.gz``, then
            ``rank{r}_trace_2.json.gz`` and so on; None: only in the files of ``output``.
        merge: a trace of torch.profiler to merge into the files of ``save_dir``.

    Raises:
        TypeError, ValueError: a value of the wrong type or out of range.
        OSError: ``save_dir`` names something that is not a directory.
    """

    min_us: float = 50.0
    max_events: int = 200_000
    save_dir: str | os.PathLike[str] | None = None
    merge: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= check_float("trace min_us", self.min_us) <= 1e9:
            raise ValueError(f"trace min_us is {self.min_us!r:.80}, expected 0 to 1e9")
        check_int("trace max_events", self.max_events, low=1, high=5_000_000)
        if self.merge is not None and self.save_dir is None:
            raise ValueError("trace merge needs save_dir; set both")
        if self.save_dir is not None:
            object.__setattr__(self, "save_dir", resolve_directory(self.save_dir))


def trace_options(value: object) -> TraceOptions | None:
    """Return options for ``trace`` of :class:`~fastprof.Profiler`; None: no trace.

    Raises:
        TypeError, ValueError, OSError: not a trace option, or an invalid value in it.
    """
    if value is None or value is False:
        return None
    if value is True:
        return TraceOptions()
    if isinstance(value, TraceOptions):
        return value
    if isinstance(value, Mapping):
        try:
            return TraceOptions(**value)
        except TypeError as error:
            raise TypeError(f"trace is {dict(value)!r:.120}: {error}") from None
    raise TypeError(
        f"trace is {type(value).__name__}, expected True, False, fastprof.TraceOptions or a dict"
    )


class TraceWindows(Part):
    """Opens and closes the windows of a run by its schedule.

    Args:
        options: None: there is no trace.
        schedule: None: the whole run is one window.
        report: returns the report of the run.
        rank: returns the rank, which is in the files' names.
    """

    kind = "trace"

    def __init__(
        self,
        options: TraceOptions | None,
        schedule: Schedule | None,
        recorder: Recorder,
        report: Callable[[], Report],
        rank: Callable[[], int],
    ) -> None:
        self._options = options
        self._schedule = schedule
        self._recorder = recorder
        self._report = report
        self._rank = rank
        #: Names of threads at the edges of windows, by ident; None: there is no trace.
        self._names: dict[int, str] | None = None if options is None else {}

    @property
    def on(self) -> bool:
        return self._options is not None

    def begin(self) -> None:
        """Start the run."""
        if self._schedule is None or self._schedule.records(0):
            self._open()

    def next_step(self, count: int) -> int:
        if self._schedule is None or not self.on:
            return sys.maxsize
        return self._schedule.next_step(count)

    def at_step(self, count: int) -> None:
        """Handle the end of ``count`` steps; the step that begins has that number."""
        if self._schedule is None or not self.on:
            return
        records = self._schedule.records(count)
        if not records or self._schedule.action(count - 1) == RECORD_AND_SAVE:
            self.end()
        if records:
            self._open()

    def _open(self) -> None:
        if self._options is not None:
            self._recorder.trace_open(
                min_ns=round(self._options.min_us * 1000), max_events=self._options.max_events
            )
            self._note_names()

    def end(self, count: int = 0) -> None:
        """End the window, if one is open."""
        if self.on:
            self._note_names()
            self._recorder.trace_close()

    def _note_names(self) -> None:
        if self._names is not None and len(self._names) < 10_000:
            self._names.update(thread_names())

    def arguments(self, *, whole: bool) -> dict[str, Any]:
        return {"trace_names": self._names} if whole else {}

    def publish(self, count: int) -> None:
        """Write a file per window, if ``save_dir`` is set."""
        options = self._options
        if options is not None and options.save_dir is not None:
            from fastprof.export.trace.files import save_windows

            save_windows(self._report(), options.save_dir, self._rank(), merge=options.merge)
