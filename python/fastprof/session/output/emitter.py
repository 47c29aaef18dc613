"""Passes the metrics of a run to its logger."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastprof.capture.options import Recorder
from fastprof.guards import is_near_limit, own_errors
from fastprof.results.report import Report
from fastprof.session.faults import Faults
from fastprof.session.output.metrics import LogCall, Metric, MetricWindow, log_call
from fastprof.session.own_time import OwnTime, clock
from fastprof.session.pace import Pace
from fastprof.session.part import Part


class MetricEmitter(Part):
    """Takes the recorder's accumulated metrics and logs them, one call per emission.

    Only the primary rank calls the logger.  A failing logger is reported once and not called again.

    Args:
        every: steps between emissions; 0: there are no metrics.
        logger: the program's; None: metrics are kept, not logged.
        report: returns the report of the run.
        others: returns further values of each emission.
        texts: returns texts since the last call, for a logger with ``log_change(text, step)``.
        pace: when metrics are due that neither a logger nor the program takes; None: as others.

    Raises:
        TypeError: ``logger`` is not a logger.
    """

    kind = "metrics"

    def __init__(
        self,
        every: int,
        recorder: Recorder,
        window: MetricWindow,
        logger: Any,
        is_primary: Callable[[], bool],
        faults: Faults,
        own_time: OwnTime,
        report: Callable[[], Report],
        others: Callable[[], Mapping[str, float]],
        texts: Callable[[], Iterable[str]],
        pace: Pace | None,
    ) -> None:
        self._every = every
        self._pace = pace if logger is None else None
        self._own_time = own_time
        self._recorder = recorder
        self._window = window
        self._log: LogCall | None = None if logger is None else log_call(logger)
        self._report = report
        self._others = others
        self._texts = texts
        self._is_primary = is_primary
        self._faults = faults
        #: A logger that takes the report of the run as well.
        self._log_report = getattr(logger, "log_report", None)
        self._log_change = getattr(logger, "log_change", None)
        self._last: dict[str, Metric] = {}

    def latest(self) -> dict[str, Metric]:
        """Return the latest metric of every key; a program that asks gets them as a logger does."""
        self._pace = None
        return dict(self._last)

    def next_step(self, count: int) -> int:
        if self._every and self._pace is not None:
            return self._pace.next_step(count)
        return (count // self._every + 1) * self._every if self._every else sys.maxsize

    def at_step(self, count: int) -> None:
        if self._every and count % self._every == 0:
            self.emit("train")

    def publish(self, count: int) -> None:
        """Log an unfinished validation pass, and pass the report to a logger that takes it."""
        if not self._every:
            return
        self.emit("val")
        if self._log is None or not self._is_primary():
            return
        self._log_changes()
        if callable(self._log_report) and not self._guarded(self._log_report, self._report()):
            self._log = None

    def collect(self, *, validating: bool = False) -> None:
        """Move the recorder's accumulated metrics into the window."""
        if not self._every:
            return
        self._window.add(
            self._recorder.take_loaders(), steps=self._recorder.steps, validating=validating
        )

    def sections_switched(self, on: bool) -> None:
        if self._every:
            self.collect()
            self._window.switched(on)

    def emit(self, split: str) -> None:
        """Log the metrics of ``split`` since its last emission, if there are any."""
        self.collect(validating=split == "val")
        taken = self._window.take(split)
        self._last.update(taken)
        values = {key: metric.value_ms for key, metric in taken.items()}
        if split == "train":
            values.update(self._others())
        if self._log is None or not self._is_primary():
            return
        if values and not self._guarded(self._log, values):
            self._log = None
        if split == "train":
            self._log_changes()

    def _log_changes(self) -> None:
        if self._log is None or not callable(self._log_change):
            return
        for text in self._texts():
            if not self._guarded(self._log_change, text, "gets no further changes"):
                self._log_change = None
                return

    def _guarded(
        self, log: Callable[[Any, int], object], what: object, off: str = "was switched off"
    ) -> bool:
        """Call a function of the logger; return False if it must not be called again."""
        began, again = clock(), True
        try:
            log(what, self._recorder.steps)
        except own_errors() as error:  # any error of a user's logger
            again = is_near_limit(error)
            lost = "has missed metrics" if again else off
            self._faults.add("logger_errors", f"The metrics logger failed and {lost}", error)
        self._own_time.apart_ns += clock() - began  # the program's time
        return again
