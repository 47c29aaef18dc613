"""Tells when torch initialises CUDA, so that nobody has to keep asking.

torch runs a list of functions right after it has initialised CUDA; one more is put there.
If torch is not imported yet, a finder on ``sys.meta_path`` that finds nothing waits for
it: it is asked at every import, and torch imports a lot after ``torch.cuda`` is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from fastprof.session.finders import remove_finder


class CudaInit:
    """Calls ``told`` when torch has initialised CUDA.

    Args:
        told: called in the thread that initialises CUDA; must not raise.
    """

    def __init__(self, told: Callable[[], object]) -> None:
        self._told = told
        self._queue: list[Any] | None = None
        self._watching = False
        self._entry: tuple[Callable[[], None], list[str]] = (self._initialised, [])

    def watch(self) -> None:
        """Begin; does nothing the second time."""
        if not self._watching:
            self._watching = True
            if not self._enqueue():
                sys.meta_path.insert(0, self)

    def forget(self) -> None:
        """Take back what was put anywhere."""
        self._watching = False
        remove_finder(self)
        if self._queue is not None and self._entry in self._queue:
            self._queue.remove(self._entry)
        self._queue = None

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Find nothing; look whether torch is there by now."""
        # Staying in the list is deliberate: the import system is going through it.
        if self._watching and self._queue is None:
            self._enqueue()

    def _enqueue(self) -> bool:
        cuda = sys.modules.get("torch.cuda")
        # torch's own way to add an entry waits for a lock that an initialisation in
        # another thread may hold, so it is done by hand, once the list looks as it should.
        queue = getattr(cuda, "_queued_calls", None)
        if not isinstance(queue, list) or not queue:
            return False
        first = queue[0]
        if not (isinstance(first, tuple) and len(first) == 2 and callable(first[0])):
            return False
        queue.append(self._entry)
        self._queue = queue
        return True

    def _initialised(self) -> None:
        if self._watching:
            self._told()
