"""A flag to wait for."""

from __future__ import annotations

import _thread
from contextlib import suppress


class Ending:
    """A flag to wait for, which a forked child and a signal handler may set, too.

    ``threading.Event`` has a lock; a thread that does not exist in the child may hold it.
    """

    def __init__(self) -> None:
        self._is_set = False
        #: Open when the flag is set.
        self.gate = _thread.allocate_lock()
        self.gate.acquire()

    def set(self) -> None:
        """Set the flag and end the waiting."""
        self._is_set = True
        with suppress(RuntimeError):  # it is open
            self.gate.release()

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, at most ``seconds``; return whether it is set."""
        if not self._is_set and self.gate.acquire(timeout=max(0.0, seconds)):
            with suppress(RuntimeError):
                self.gate.release()
        return self._is_set
