"""Passes the metrics of a run to its logger."""

from collections.abc import Callable, Mapping
from typing import Any

from fastprof.capture.options import Recorder
from fastprof.guards import own_errors
from fastprof.report import Report
from fastprof.session.faults import Faults
from fastprof.session.output.metrics import LogCall, Metric, MetricWindow
from fastprof.session.own_time import OwnTime, clock


class MetricEmitter:
    """Takes the recorder's accumulated metrics and logs them, one call per emission.

    Only the primary rank calls the logger.  A failing logger is reported once and not called again.
    """

    def __init__(
        self,
        recorder: Recorder,
        window: MetricWindow,
        log: LogCall | None,
        is_primary: Callable[[], bool],
        faults: Faults,
        logger: Any = None,
        own_time: OwnTime | None = None,
        ranks: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._own_time = own_time or OwnTime()
        self._recorder = recorder
        self._window = window
        self._log = log
        self._ranks = ranks
        self._is_primary = is_primary
        self._faults = faults
        #: A logger that takes the report of the run as well.
        self._log_report = getattr(logger, "log_report", None)
        #: The latest metric of every key.
        self.last: dict[str, Metric] = {}

    def collect(self, *, validating: bool = False) -> None:
        """Move the recorder's accumulated metrics into the window."""
        self._window.add(
            self._recorder.take_loaders(), steps=self._recorder.steps, validating=validating
        )

    def emit(self, split: str) -> None:
        """Log the metrics of ``split`` since its last emission, if there are any."""
        self.collect(validating=split == "val")
        taken = self._window.take(split)
        self.last.update(taken)
        values = {key: metric.value_ms for key, metric in taken.items()}
        if split == "train":
            values.update(self._ranks())
        if not values or self._log is None or not self._is_primary():
            return
        self._guarded(self._log, values)

    def emit_report(self, report: Callable[[], Report]) -> None:
        """Pass the report of the run to a logger that has ``log_report(report, step)``."""
        if callable(self._log_report) and self._log is not None and self._is_primary():
            self._guarded(self._log_report, report())

    def _guarded(self, log: Callable[[Any, int], object], what: object) -> None:
        began = clock()
        try:
            log(what, self._recorder.steps)
        except own_errors() as error:  # any error of a user's logger
            self._log = None
            self._faults.add(
                "logger_errors", "The metrics logger failed and was switched off", error
            )
        self._own_time.apart_ns += clock() - began  # the program's time
