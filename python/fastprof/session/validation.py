"""Passes over validation loaders: their phase of the run, and their metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fastprof.session.output.emitter import MetricEmitter
from fastprof.session.run_phase import RunPhase


class _Loop(Protocol):
    """The part of a run that the passes use."""

    @property
    def running(self) -> bool: ...
    def enter_phase(self, phase: str) -> None: ...
    def leave_phase(self, phase: str) -> None: ...
    def protect(self, kind: str, action: Callable[..., object], *args: Any) -> None: ...


class Validation:
    """The validation passes of one run, as loaders and integrations report them."""

    def __init__(self, run: _Loop, phase: RunPhase, metrics: MetricEmitter) -> None:
        self._run = run
        self._phase = phase
        self._metrics = metrics
        #: Number of passes that have begun and not ended.
        self.open = 0
        #: Counts resumptions of training; passes that began before one are over.
        self.round = 0

    def begins(self) -> None:
        """Begin a pass."""
        if self._run.running:
            self.open += 1
            self._run.protect("metrics", self._metrics.collect)
            self._run.enter_phase("validation")

    def ends(self) -> None:
        """End a pass."""
        if self._run.running:
            self._run.protect("metrics", self._metrics.emit, "val")
            if self.open:
                self.open -= 1
                self._run.leave_phase("validation")

    def training_goes_on(self) -> None:
        """End the passes that are open when the program requests a training batch."""
        # Another thread that reads batches ahead does not end the validation.
        if self.open and self._phase.is_here():
            self.round += 1
        while self.open and self._phase.is_here():
            self.open -= 1
            self._run.leave_phase("validation")
