"""The recording of a loop that runs already."""

import fastprof.read.fprof  # noqa: F401 - imported before the recording, not at its end
from fastprof.integrations import torch_loop
from fastprof.session.profiler import Profiler, run_of
from fastprof.snapshot import Snapshot


class Attached:
    """One recording; gives way to a run that the program starts."""

    def __init__(self) -> None:
        self._profiler = Profiler(ranks=False)
        run = run_of(self._profiler)
        run.gives_way = True
        run.print_at_exit = lambda: None  # whoever has asked sees that the process has ended
        self._loop: torch_loop.TorchLoop | None = None

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
