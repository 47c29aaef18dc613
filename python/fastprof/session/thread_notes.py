"""Remembers the names of threads, which may have ended by the time of a report."""

import sys
from dataclasses import replace
from threading import get_ident
from typing import Any

from fastprof.capture.convert import thread_names
from fastprof.session.pace import Pace
from fastprof.session.part import Part
from fastprof.snapshot import Snapshot

#: Names that are remembered.
_MOST_NAMES = 10_000

#: The first looks at the names are after 1, 2, 4 and so on steps, up to this many.
_EARLY = 32


class ThreadNotes(Part):
    """The names that a run's threads had when something else was due."""

    kind = "thread"

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._names: dict[int, str] = {}
        # A thread that starts later may get the ident of the training thread.
        self._training = ""

    def next_step(self, count: int) -> int:
        if len(self._names) >= _MOST_NAMES:
            return sys.maxsize
        early = 1 << count.bit_length()
        return early if early <= _EARLY else self._pace.next_step(count)

    def at_step(self, count: int) -> None:
        self.note()

    def moved(self, count: int) -> None:
        self.note()
        self._training = self._names.get(get_ident(), "")

    def note(self) -> None:
        """Keep the names of the threads: one that ends takes its name along."""
        if len(self._names) < _MOST_NAMES:
            self._names.update(thread_names())

    def arguments(self, *, whole: bool) -> dict[str, Any]:
        return {"noted_names": self._names}

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        number = snapshot.steps.thread
        if not self._training or number is None:
            return snapshot
        threads = list(snapshot.threads)
        threads[number] = replace(threads[number], name=self._training)
        return replace(snapshot, threads=tuple(threads))
