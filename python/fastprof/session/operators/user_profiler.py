"""Detects the program's own use of torch.profiler and keeps fastprof out of its way.

Only one torch.profiler can run at a time: starting a second one ends the first, which is then lost.
So fastprof begins no window during the program's, and drops its own when the program begins.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastprof.session.gpu.rival_profilers import Torch
from fastprof.session.patching.wrapping import After, Before


class ForeignProfiler(Torch):
    """Watches the program's torch.profiler; calls inside ``own()`` are fastprof's.

    Args:
        began: called when the program begins to profile; must not raise.
    """

    def __init__(self, began: Callable[[], None]) -> None:
        super().__init__(self)  # the watch tells its own hold() and release()
        self._began = began
        self._own = threading.local()
        #: Whether the program is profiling.
        self.active = False

    @contextmanager
    def own(self) -> Iterator[None]:
        """Calls that this thread makes in the block are fastprof's."""
        depth = getattr(self._own, "depth", 0)
        self._own.depth = depth + 1
        try:
            yield
        finally:
            self._own.depth = depth

    def hold(self, name: str) -> None:
        """Note that the program begins to profile."""
        self.active = True
        self._began()

    def release(self, name: str) -> None:
        """Note that the program has ended profiling."""
        self.active = False

    def calls(self) -> Mapping[str, tuple[Before | None, After]]:
        return {
            name: (None if before is None else self._unless_own(before), self._unless_own(after))
            for name, (before, after) in super().calls().items()
        }

    def _unless_own(self, action: Callable[..., None]) -> Callable[..., None]:
        def act(*args: Any) -> None:
            if not getattr(self._own, "depth", 0):
                action(*args)

        return act
