"""Waits for the GPU at section boundaries, if the user asks for it."""

import sys

from fastprof import _core
from fastprof.guards import own_errors


class CudaSync:
    """Calls ``torch.cuda.synchronize()`` if the program uses CUDA.

    It does nothing unless torch is already imported and has initialised CUDA: fastprof
    neither imports torch nor creates a CUDA context.  It also does nothing during the capture
    of a CUDA graph, because a synchronisation would spoil the capture.  It counts failures and
    otherwise ignores them: they must not reach the training code.
    """

    __slots__ = ("failures",)

    def __init__(self) -> None:
        #: Number of synchronisations that raised.
        self.failures = 0

    def __call__(self) -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            return
        try:
            cuda = torch.cuda
            if not cuda.is_initialized() or cuda.is_current_stream_capturing():
                return
            cuda.synchronize()
        except own_errors():  # a broken driver must not stop the training
            self.failures += 1

    def install(self) -> None:
        """Make this the function that synchronised sections call."""
        _core.set_sync_function(self)

    @staticmethod
    def uninstall() -> None:
        """Let synchronised sections call nothing."""
        _core.set_sync_function(None)
