"""Waiting for the GPU at section boundaries, for those who ask for it."""

from __future__ import annotations

import sys

from fastprof import _core


class CudaSync:
    """Calls ``torch.cuda.synchronize()`` when there is something to wait for.

    Nothing happens unless torch is already imported and has initialised CUDA: fastprof
    neither imports torch nor creates a CUDA context.  While a CUDA graph is being
    captured nothing happens either, because a synchronisation would spoil the capture.
    A failure is counted and otherwise ignored: it must not reach the training code.
    """

    __slots__ = ("calls", "failures")

    def __init__(self) -> None:
        #: Synchronisations done.
        self.calls = 0
        #: Synchronisations that raised.
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
            self.calls += 1
        except Exception:  # a broken driver must not stop the training
            self.failures += 1

    def install(self) -> None:
        """Make this the function that synchronised sections call."""
        _core.set_sync_function(self)

    @staticmethod
    def uninstall() -> None:
        """Let synchronised sections call nothing."""
        _core.set_sync_function(None)
