"""The GPU layer of a run: when it starts, pauses for others, and ends.

The recorder collects in C.  This module decides when to start it: initialising CUDA before the
program does would break the children that it forks, so until then the layer waits.  A failure
becomes a sentence with its cause and never an exception in the training code.
"""

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar

from fastprof.capture.options import Recorder
from fastprof.guards import own_errors
from fastprof.session.faults import Faults
from fastprof.session.gpu.cuda_init import CudaInit
from fastprof.session.gpu.rival_profilers import Conflicts
from fastprof.session.part import Part
from fastprof.snapshot import Snapshot
from fastprof.snapshot.gpu import GpuSnapshot

_T = TypeVar("_T")

OFF, WAITING, ON = "off", "waiting", "on"

#: Longest waits, in seconds: for the records at the end of a run, and before a report.
STOP_LIMIT_S = 2.0
FLUSH_LIMIT_S = 0.25

#: The first polls come after 1, 2, 4 ... steps, the others each time after this many steps.
_POLL_EVERY = 64


class GpuLayer(Part):
    """Starts and stops the recorder's GPU collection.

    Args:
        wanted: ``"auto"``: start once the program uses CUDA; True: start now, initialising CUDA if
            needed; False: never.
    """

    kind = "gpu"

    def __init__(self, recorder: Recorder, wanted: bool | Literal["auto"], faults: Faults) -> None:
        self._recorder = recorder
        self._wanted = wanted
        self._faults = faults
        self._conflicts = Conflicts(self._pause, self._resume)
        self._cuda_init = CudaInit(self.poll)
        self._asking = threading.Lock()
        self._due = sys.maxsize
        #: ``"off"``, ``"waiting"`` for the program to use CUDA, or ``"on"``.
        self.state = OFF
        #: Why it is off or waiting, or what was degraded; empty if there is no remark.
        self.reason = ""
        #: A tool that holds the GPU's records (nsys, ncu); empty if there is none.
        self.tool = ""

    def begin(self) -> None:
        """Begin to collect, or to wait."""
        if self._wanted is False:
            return
        self._due = 1
        from fastprof.capture import gpu_find

        self.state = WAITING
        tool: str | None = self._guard(gpu_find.attached_tool)
        self.tool = tool or ""
        if self.tool:
            self._leave(f"the GPU's activity records belong to {self.tool}")
        elif self.state == WAITING:
            self._ask()

    def poll(self) -> None:
        """Check whether the program has begun to use CUDA, or another profiler."""
        if self.state == WAITING:
            self._ask()
        elif self.state == ON:
            self._conflicts.install()

    def next_step(self, count: int) -> int:
        return sys.maxsize if self.state == OFF else self._due

    def at_step(self, count: int) -> None:
        if count >= self._due:
            self.poll()
            rare = (count // _POLL_EVERY + 1) * _POLL_EVERY
            self._due = 2 * count if count < _POLL_EVERY else rare

    def arguments(self, *, whole: bool) -> dict[str, Any]:
        # Count finished GPU work, as far as that takes no time.
        if whole and self.state == ON and not self._conflicts.holder:
            self._guard(self._recorder.gpu_flush, FLUSH_LIMIT_S)
        return {}

    def end(self, count: int = 0) -> None:
        """End collecting; do nothing the second time."""
        was, self.state = self.state, OFF
        self._forget()
        if was == ON:
            self._guard(self._recorder.gpu_stop, STOP_LIMIT_S)

    def forget(self) -> None:
        """End it in a forked child, where CUDA and CUPTI cannot be used."""
        self.state = OFF
        self._forget()

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        if snapshot.gpu is not None or not self.reason:
            return snapshot
        return replace(snapshot, gpu=GpuSnapshot("off", self.reason))

    # -- between start and stop ----------------------------------------------------

    def _ask(self) -> None:
        # The thread that initialises CUDA may come while the stepping thread is in here.
        if self._asking.acquire(blocking=False):
            try:
                self._ask_once()
            finally:
                self._asking.release()

    def _ask_once(self) -> None:
        self._conflicts.install()
        if self._conflicts.holder:
            self.reason = f"{self._conflicts.holder} had the GPU's activity records"
            return
        answer = self._guard(self._start_recorder)
        if answer is None:
            return
        state, reason = answer
        if self.state == OFF:  # another thread stopped the run meanwhile
            if state == ON:
                self._guard(self._recorder.gpu_stop, STOP_LIMIT_S)
            return
        self.state, self.reason = state, reason
        if self.state == WAITING:
            self._cuda_init.watch()
        elif self.state == ON:
            self._cuda_init.forget()
        else:
            self._leave(self.reason)

    def _start_recorder(self) -> tuple[str, str]:
        """Start the recorder; return its state and the reason."""
        from fastprof.capture import gpu_find

        initialise = self._wanted is True
        driver = gpu_find.driver_path()
        paths = gpu_find.cupti_paths(driver, initialise=initialise)
        answer = self._recorder.gpu_start(
            paths,
            driver,
            initialise=initialise,
            tier="auto",
            nvml=gpu_find.nvml_path(),
            takes_slot=gpu_find.takes_slot(),
        )
        return str(answer["state"]), str(answer["reason"])

    def _pause(self, why: str) -> None:
        if self.state == ON:
            self._guard(self._recorder.gpu_pause, why)

    def _resume(self) -> None:
        if self.state == ON and os.environ.get("TEARDOWN_CUPTI") == "1":
            # If it is set, torch.profiler ends CUPTI for the process some time after each session.
            self._faults.log(
                "GPU times are not recorded any more: with TEARDOWN_CUPTI=1 torch.profiler ends "
                "CUPTI for the whole process; unset it"
            )
        elif self.state == ON:
            self._guard(self._recorder.gpu_resume)
        elif self.state == WAITING:
            self._ask()

    def _leave(self, reason: str) -> None:
        """Collect nothing in this run; warn if the user requested it."""
        self.state, self.reason = OFF, reason
        self._forget()
        if self._wanted is True:
            # The report has the reason anyway.
            self._faults.log(f"GPU times are not recorded: {reason}")

    def _forget(self) -> None:
        self._cuda_init.forget()
        self._conflicts.uninstall()

    def _guard(self, action: Callable[..., _T], *args: Any) -> _T | None:
        """Call the collector; if it raises, switch the GPU layer off."""
        try:
            return action(*args)
        except own_errors() as error:  # nothing may reach the training code
            if self._faults.is_gap("gpu_errors", error):
                return None
            was, self.state = self.state, OFF
            self.reason = f"the collector failed: {type(error).__name__}"
            self._forget()
            self._faults.add("gpu_errors", "GPU collection failed and was switched off", error)
            if was == ON:
                self._guard(self._recorder.gpu_stop, STOP_LIMIT_S)
            return None
