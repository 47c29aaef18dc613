"""The loaders of one run, and what their iterators need to know of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from fastprof.session.environment.step_limit import StepLimit
from fastprof.session.loaders.timing import NO_LOADER, LoaderRegistry
from fastprof.session.loaders.worker_profiles import WorkerProfiles
from fastprof.session.loaders.worker_stats import Watches
from fastprof.session.validation import Validation

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder
    from fastprof.session.faults import Faults
    from fastprof.session.function_windows import FunctionWindows
    from fastprof.session.options import Options
    from fastprof.session.output.emitter import MetricEmitter
    from fastprof.session.own_time import OwnTime
    from fastprof.session.run_phase import RunPhase
    from fastprof.snapshot.history_sums import Loading as Workers


class _Run(Protocol):
    """The part of the run that its loaders use."""

    @property
    def recorder(self) -> Recorder: ...
    @property
    def faults(self) -> Faults: ...
    @property
    def own_time(self) -> OwnTime: ...
    @property
    def running(self) -> bool: ...
    @property
    def steps(self) -> int: ...
    def phase_begins(self, phase: str) -> None: ...
    def enter_phase(self, phase: str) -> None: ...
    def leave_phase(self, phase: str) -> None: ...
    def protect(self, kind: str, action: Callable[..., object], *args: Any) -> None: ...


class Loading:
    """The loaders of one run.

    Its plain attributes are read by the iterators at every batch.
    """

    def __init__(self, run: _Run, options: Options) -> None:
        self._run = run
        self._skip_first = options.skip_first
        self.registry = LoaderRegistry()
        self.own_time = run.own_time
        profiles = WorkerProfiles(
            options.recorder.worker_functions,
            options.recorder.backend,
            options.recorder.max_depth,
            run.faults,
        )
        #: Observes how loaders get their batches.
        self.watches = Watches(self, run.faults, profiles)
        self.limit = StepLimit(run)
        self.next_batch = self.limit.applied(run.recorder.next_batch)
        #: Whether the run is active.
        self.counting = False
        #: The loader of the training batch at work.
        self.train_tag = NO_LOADER

    def join(self, phase: RunPhase, windows: FunctionWindows, metrics: MetricEmitter) -> None:
        """Use these parts of the run, which are made later and use the loaders themselves."""
        self._phase = phase
        self._windows = windows
        self.validation = Validation(self._run, phase, metrics)

    @property
    def measuring(self) -> bool:
        """Whether the current step is measured: neither warm-up nor without the hook."""
        past = self._run.steps >= self._skip_first
        return self.counting and past and not self._windows.open

    @property
    def away_ns(self) -> int:
        """Time of the run outside of steps so far, in ns."""
        return self._phase.away_ns

    @property
    def workers_now(self) -> tuple[int, Workers | None]:
        """The tag of the training batch's loader, and what its workers did so far."""
        return self.train_tag, self.watches.now(self.train_tag)

    def workers_begin(self, what: str) -> bool:
        """Leave a step because a loader starts or ends its workers; return whether it did.

        Args:
            what: "start" or "end".
        """
        if not self._run.running or not self._phase.are_workers_apart(what, self._run.steps):
            return False
        self._run.phase_begins("workers")
        self._phase.enter_workers()
        return True

    def workers_end(self) -> None:
        """Go on with the step, after :meth:`workers_begin` has left one."""
        if self._run.running:
            self._phase.leave_workers()

    def leave_validation(self) -> None:
        """Note that work on the training batch continues (called by the iterator)."""
        if self._run.running:
            self._run.protect("metrics", self._run.recorder.set_loader, self.train_tag)
