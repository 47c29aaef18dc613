"""Recording of functions: all steps or those of a schedule, and pauses for other work."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from fastprof.guards import own_errors
from fastprof.session.faults import Faults
from fastprof.session.part import Part
from fastprof.session.schedule import Schedule
from fastprof.snapshot import Snapshot
from fastprof.snapshot.run_phases import RUN_PHASES

_OUTSIDE = RUN_PHASES.index("outside")


class FunctionHook(Part):
    """The recorder's function layer in one run.

    Args:
        wanted: True: record functions or do not start; ``"auto"``: if no other profiler has the
            interpreter's hook; False: no.
        schedule: steps with recorded functions; None: all.
    """

    kind = "function"

    def __init__(
        self,
        recorder: Any,
        wanted: bool | Literal["auto"],
        schedule: Schedule | None,
        faults: Faults,
    ) -> None:
        self._recorder = recorder
        self._wanted = wanted
        self._schedule = schedule
        self._faults = faults
        self.must_begin = wanted is True
        #: Whether functions are recorded, if not in the current step.
        self.recording = False
        #: Calls that were open at the start are callers of later ones.
        self.is_called = True
        #: Fold the calls of libraries during their import per module: see export_imports.h.
        self.folds_imports = False
        self._taken = self._returned = False

    def begin(self) -> None:
        if self._wanted is False:
            return
        try:
            self._recorder.enable(callers=self.is_called)
            self.recording = True
        except own_errors() as error:  # BusyError, or no memory
            if self.must_begin:
                raise
            self._faults.notes.append(f"Functions were not recorded: {error}")
        if self.recording and not self._records(0):
            self._recorder.pause_functions()

    def next_step(self, count: int) -> int:
        if self._schedule is None or not self.recording:
            return sys.maxsize
        return self._schedule.next_step(count)

    def at_step(self, count: int) -> None:
        if self._schedule is None or not self.recording:
            return
        # The number of the step that begins now is the count of ended steps.
        if self._records(count):
            self._recorder.resume_functions()
        else:
            self._recorder.pause_functions()

    def end(self, count: int) -> None:
        self._recorder.disable()

    def forget(self) -> None:
        self._recorder.disable()

    def arguments(self, *, whole: bool) -> dict[str, Any]:
        from fastprof.report.origin import import_class

        return {"fold_imports": import_class} if self.folds_imports else {}

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        has_functions = self._recorder.backend is not None
        return replace(snapshot, meta={**snapshot.meta, "functions": has_functions})

    def stop(self, why: str) -> None:
        """Record no more functions in this run; sections, steps and metrics continue."""
        if not self.recording:
            return
        self.recording = False
        self._faults.notes.append(f"Recording of functions ended early: {why}.")
        self._recorder.disable()

    # -- for a moment, or a window ---------------------------------------------------

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
                if self.recording:  # otherwise another profiler has the hook by now
                    self._set_again()
                self._taken = self._returned = False
            if self.recording and self._records(self._recorder.steps):
                self._recorder.resume_functions()
            if phase is None:
                self._recorder.mark()
            else:
                self._recorder.set_phase(phase, True)

    def _set_again(self) -> None:
        try:
            self._recorder.rehook()
        except BaseException as error:  # of a signal handler, twice: the next block tries again
            why = f"some functions were not recorded: {type(error).__name__} came meanwhile"
            self._faults.notes.append(f"The function hook could not be set again, so {why}.")
            raise

    def take_away(self) -> bool:
        """Release the hook to torch's stack tracer, which needs it; return whether it was ours."""
        if self._recorder.backend == "setprofile" and self.recording:
            self._recorder.pause_functions(unhook=True)
            self._taken = True
        return self._taken

    def put_back(self) -> None:
        """End :meth:`take_away`, at the end of the block of :meth:`aside`."""
        self._returned = self._taken

    def _records(self, step: int) -> bool:
        return self._schedule is None or self._schedule.records(step)
