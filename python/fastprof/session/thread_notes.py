"""Remembers the names of threads, which may have ended by the time of a report."""

import sys
from dataclasses import replace
from threading import get_ident
from typing import Any

from fastprof.capture.convert import thread_names
from fastprof.session.part import Part
from fastprof.snapshot import Snapshot

#: Names that are remembered.
_MOST_NAMES = 10_000

#: Steps from one look at the names to the next, once a run has as many: those of metrics.
_EVERY = 50


class ThreadNotes(Part):
    """The names that a run's threads had in the course of the run."""

    kind = "thread"

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        # A thread that starts later may get the ident of the training thread.
        self._training = ""
        self._due = 1

    def next_step(self, count: int) -> int:
        return self._due if len(self._names) < _MOST_NAMES else sys.maxsize

    def at_step(self, count: int) -> None:
        self._due = 2 * count if count < _EVERY else (count // _EVERY + 1) * _EVERY
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
