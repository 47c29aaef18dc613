"""Remembers the names of threads, which may have ended by the time of a report."""

from typing import Any

from fastprof.capture.convert import thread_names
from fastprof.session.part import Part

#: Names that are remembered.
_MOST_NAMES = 10_000


class ThreadNotes(Part):
    """The names that a run's threads had when something else was due."""

    kind = "thread"

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def at_step(self, count: int) -> None:
        self.note()

    def note(self) -> None:
        """Keep the names of the threads: one that ends takes its name along."""
        if len(self._names) < _MOST_NAMES:
            self._names.update(thread_names())

    def arguments(self, *, whole: bool) -> dict[str, Any]:
        return {"noted_names": self._names}
