"""Detects when torch initialises CUDA, so that no code has to poll for it.

torch runs a list of functions right after it has initialised CUDA; this module adds one. It never
shortens the list while torch iterates over it: the next function would be skipped, and the
functions after ours seed CUDA's random numbers.

If torch is not imported yet, a finder on ``sys.meta_path`` that finds nothing waits for it: every
import calls it, and torch imports a lot after ``torch.cuda`` exists.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from fastprof.capture.around import Around, find_elsewhere
from fastprof.session.patching.finders import add_finder, remove_finder


def used_cuda() -> Any:
    """Return ``torch.cuda`` if the program uses it by now, else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


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
        #: Finds nothing.
        self.find_spec = Around(partial(find_elsewhere, self, None), self._asked, None)

    def watch(self) -> None:
        """Begin; does nothing the second time."""
        if not self._watching:
            self._watching = True
            if not self._enqueue():
                add_finder(self)

    def forget(self) -> None:
        """Remove fastprof's entries.

        While torch iterates over its list our entry stays there and does nothing; the next call of
        this method removes it.
        """
        self._watching = False
        remove_finder(self)
        if self._queue is not None and _remove(self._queue, self._entry):
            self._queue = None

    def _asked(self, name: str, path: object = None, target: object = None) -> None:
        """Check whether torch is imported by now."""
        # It stays in the list deliberately: the import system is iterating over it.
        if self._watching and self._queue is None:
            self._enqueue()

    def _enqueue(self) -> bool:
        if self._queue is not None:  # forgotten while torch iterated over it
            return True
        cuda = sys.modules.get("torch.cuda")
        # torch's own way to add an entry waits for a lock that an initialisation in another thread
        # may hold, so add it directly, once the list looks as expected.
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


def _remove(queue: list[Any], entry: object) -> bool:
    """Remove ``entry`` from torch's list; False if torch may be iterating over it."""
    cuda = sys.modules.get("torch.cuda")
    if getattr(cuda, "_queued_calls", None) is not queue:
        return True  # torch no longer iterates over this list
    # Held while torch iterates over the list, and while a call is added.
    lock: Any = getattr(cuda, "_initialization_lock", None)
    if hasattr(getattr(cuda, "_tls", None), "is_initializing"):
        return False
    if not hasattr(lock, "acquire") or not lock.acquire(blocking=False):
        return False
    try:
        # By identity: comparing tuples would call methods of other functions.
        for i in range(len(queue)):
            if queue[i] is entry:
                del queue[i]
                break
    finally:
        lock.release()
    return True
