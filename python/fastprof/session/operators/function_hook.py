"""Switches the recording of functions off while fastprof works, or torch needs the hook."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastprof.session.schedule import Schedule
from fastprof.snapshot.run_phases import RUN_PHASES

_OUTSIDE = RUN_PHASES.index("outside")


class FunctionHook:
    """Interface of the recorder: function recording off for a moment, or for a window.

    Args:
        schedule: steps with recorded functions; None: all.
        recording: whether functions are recorded at all.
    """

    def __init__(
        self, recorder: Any, schedule: Schedule | None, recording: Callable[[], bool]
    ) -> None:
        self._recorder = recorder
        self._schedule = schedule
        self._recording = recording
        self._taken = self._returned = False

    def off(self) -> None:
        """Stop recording functions, at the end of the run."""
        self._recorder.pause_functions()
        self._taken = False

    @contextmanager
    def aside(self, *, within_step: bool = False) -> Iterator[None]:
        """Exclude the block's work from functions and from steps.

        ``within_step``: a step goes on after it; otherwise one begins.
        """
        self._recorder.pause_functions()
        phase = self._recorder.set_phase(_OUTSIDE, True) if within_step else None
        try:
            yield
        finally:
            if self._returned:
                self._taken = self._returned = False
                if self._recording():  # otherwise another profiler has the hook by now
                    self._recorder.rehook()
            schedule = self._schedule
            if self._recording() and (schedule is None or schedule.records(self._recorder.steps)):
                self._recorder.resume_functions()
            if phase is None:
                self._recorder.mark()
            else:
                self._recorder.set_phase(phase, True)

    def take_away(self) -> bool:
        """Release the hook to torch's stack tracer, which needs it; return whether it was ours."""
        if self._recorder.backend == "setprofile" and self._recording():
            self._recorder.pause_functions(unhook=True)
            self._taken = True
        return self._taken

    def put_back(self) -> None:
        """End :meth:`take_away`, at the end of the block of :meth:`aside`."""
        self._returned = self._taken
