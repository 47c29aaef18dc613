"""What operator windows have recorded: sums of all windows, and the files of each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastprof.clock import time
from fastprof.guards import own_errors
from fastprof.session.faults import Faults
from fastprof.session.operators.events import WindowEvents
from fastprof.session.operators.limit import RECORDING_NS
from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.operators.sums import OperatorSums
from fastprof.session.patching.collector import collector_paused
from fastprof.snapshot.operators import OperatorSnapshot

#: Windows and files listed in a report; more are only counted.
_MAX_LISTED = 10_000


class WindowResults:
    """The results of one run.

    Args:
        options: what is recorded.
        faults: receives failures of writing, and of the user's callback.
        rank: returns the rank, which is in the files' names.
    """

    def __init__(self, options: OperatorProfile, faults: Faults, rank: Callable[[], int]) -> None:
        self._options = options
        self._faults = faults
        self._rank = rank
        self._sums = OperatorSums()
        self._windows: list[tuple[int, int]] = []
        self._files: list[str] = []
        self._kept = self._events = self._cost_ns = 0
        #: ``"cuda"`` if kernels and copies are recorded, or empty.
        self.device = ""
        #: Number of windows that the program's own profiler took.
        self.lost = 0

    @property
    def are_empty(self) -> bool:
        """Whether no window was kept."""
        return not self._kept

    def recorded(self) -> OperatorSnapshot:
        """Return the data so far."""
        options = self._options
        return OperatorSnapshot(
            device=self.device,
            windows=tuple(self._windows),
            lost=self.lost,
            shapes=options.record_shapes,
            memory=options.profile_memory,
            flops=options.with_flops,
            row_limit=options.row_limit,
            rows=self._sums.rows(),
            files=tuple(self._files),
            events=self._events,
            cost_ns=self._cost_ns + RECORDING_NS * self._events,
        )

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the block's time as the operator layer's cost."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            self._cost_ns += time.perf_counter_ns() - began

    def keep(self, profile: Any, first: int, last: int) -> int:
        """Keep a finished profile of steps ``first`` to ``last``; return its number of events."""
        options = self._options
        with collector_paused():
            events = WindowEvents(profile)
            self._events += events.count
            self._sums.add(events.averages(by_shape=options.record_shapes))
        if len(self._windows) < _MAX_LISTED:
            self._windows.append((first, last))
        cycle = None if options.schedule is None or options.schedule.repeat == 1 else self._kept
        self._kept += 1
        if options.on_trace_ready is not None:
            began = time.perf_counter_ns()
            try:
                options.on_trace_ready(profile)
            except own_errors() as error:  # the user's callback failed
                self._faults.add("operator_callback_errors", "on_trace_ready failed", error)
            self._cost_ns -= time.perf_counter_ns() - began  # the program's time
        if options.save_dir is not None:
            with collector_paused():
                self._write(profile, events, cycle)
        return events.count

    def _write(self, profile: Any, events: WindowEvents, cycle: int | None) -> None:
        from fastprof.session.operators.files import prefix_of, write_window

        options = self._options
        prefix = prefix_of(self._rank(), cycle)
        directory, cuda = str(options.save_dir), bool(self.device)
        try:
            names = write_window(profile, events, directory, prefix, options, cuda=cuda)
        except own_errors() as error:  # full disk, no permission, ...: keep the table
            self._faults.add("operator_file_errors", "Writing the operators' files failed", error)
            return
        if len(self._files) < _MAX_LISTED:
            self._files += names

    def write_table(self) -> None:
        """Write the table of the whole run, if it has rows and there is a directory for it."""
        if self._options.save_dir is None:
            return
        from fastprof.report.operators import operator_report
        from fastprof.session.operators.files import write_stats

        report = operator_report(self.recorded())
        if report is not None and report.rows:
            self._files.append(write_stats(report, str(self._options.save_dir), self._rank()))
