"""The recording of a loop that runs already."""

import sys
from collections.abc import Callable

# What a recording imports at its start and end is imported before, in fastprof's thread.
import fastprof.capture.gpu_find
import fastprof.capture.nvtx
import fastprof.read.fprof
import fastprof.session.history.segments
import fastprof.session.history.watcher  # noqa: F401
from fastprof.capture.calibrate import calibration, section_costs
from fastprof.guards import dropped
from fastprof.integrations import torch_loop
from fastprof.integrations._torch.dynamo import leave_alone
from fastprof.session.profiler import Profiler, run_of
from fastprof.snapshot import Snapshot

#: One or two rounds: the program waits for 1 to 4 ms.
_MOST_CPU_S = 0.001


class Attached:
    """One recording; gives way to a run that the program starts."""

    def __init__(self) -> None:
        self._profiler = Profiler(ranks=False)
        run = run_of(self._profiler)
        run.gives_way = True
        run.print_at_exit = lambda: None  # whoever has asked sees that the process has ended
        self._loop: torch_loop.TorchLoop | None = None
        if "torch" in sys.modules:
            with dropped():  # the program imports it just now
                leave_alone(sys.modules["torch"])
        #: Both measure once per process, and the start would, too.
        self._pieces: list[Callable[[], object]] = [
            lambda: calibration("auto", at_start=True, most_cpu_s=_MOST_CPU_S),
            section_costs,
        ]

    def prepare(self) -> bool:
        """Do a short piece of the start's work before it; return whether there was one left.

        In the main thread, because the program could fork or start a run in another one's middle.
        """
        if not self._pieces:
            return False
        with dropped():  # another profiler records: the start says so
            self._pieces.pop(0)()
        return True

    def start(self) -> None:
        """Begin in this thread, whose loop it is."""
        self._profiler.start()
        self._profiler.enter_phase("setup")
        self._loop = torch_loop.attach(self._profiler)

    def stop(self) -> None:
        """Remove every hook."""
        if self._loop is not None:
            self._loop.detach()
        self._profiler.stop()

    def snapshot(self) -> Snapshot:
        """Return what was recorded."""
        return self._profiler.snapshot()
