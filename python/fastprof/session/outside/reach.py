"""Answers requests from other terminals while a run goes on.

A thread of the extension notices a request and calls :meth:`Reach.called`.  A report is made where
it does least harm: between two steps of the training thread, like a save in between.  If no step
ends for a while, as in set-up or in a collective that hangs, that thread makes it.  A status is
always made there: the training thread makes no call for it.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Lock
from typing import TYPE_CHECKING, Any

from fastprof.capture.listener import listen, listen_never
from fastprof.clock import acquired, time
from fastprof.fileio import atomic_write
from fastprof.guards import dropped, own_errors
from fastprof.report.figures import plural
from fastprof.session.environment.signals import catch, signal_wanted
from fastprof.session.outside.about import about
from fastprof.session.outside.places import (
    ANSWERS,
    ATTACH,
    DETACH,
    NOW,
    REPORT,
    REQUESTS,
    RUN,
    STATUS,
    WATCH,
    Place,
    announce,
)
from fastprof.session.outside.standby import RECORDS, standby
from fastprof.session.part import Part

if TYPE_CHECKING:
    from fastprof.session.environment.rank import Identity
    from fastprof.session.faults import Faults
    from fastprof.session.outside.status import Status
    from fastprof.snapshot import Snapshot

#: How long to wait for the end of a step.
_STEP_S = 2.0
#: Between two looks for it, and after a request: one of the same moment may have been missed.
_SOON_NS = 50_000_000
_AGAIN_NS = 500_000_000
#: The end of a run waits this long for an answer that is being made.
_PATIENCE_S = 5.0


class Reach(Part):
    """Makes one run reachable.

    Args:
        snapshot: returns the recording so far.
        aside: makes the context in which to save between two steps.
        soon: lets :meth:`at_step` be called after the step that runs now.
        status: makes the status of the run.
        also: other work of the extension's thread; returns after how many ns it is due again.
    """

    kind = "outside"

    def __init__(
        self,
        output: str,
        identity: Identity,
        faults: Faults,
        snapshot: Callable[[], Snapshot],
        aside: Callable[[], AbstractContextManager[object]],
        soon: Callable[[], None],
        status: Status,
        also: Callable[[], int | None] = lambda: None,
    ) -> None:
        #: Folder of the run's files, in which a signal's report goes; empty: none.
        self.output = output
        self._identity = identity
        self._faults = faults
        self._snapshot = snapshot
        self._aside = aside
        self._soon = soon
        self._status = status
        self._also = also
        self._place: Place | None = None
        self._on = False
        #: Names of the requests for a report, and number of signals, that wait for an answer.
        self._asked: list[str] = []
        self._signals = 0
        self._since = 0.0
        self._making = Lock()

    def begin(self) -> None:
        """Announce the process and begin to listen."""
        wanted = signal_wanted()
        if wanted:
            catch(wanted)
        try:
            self._place = announce(
                about(RUN, self.output, self._identity.rank, self._identity.world_size)
            )
        except own_errors(OSError) as error:
            self._faults.notes.append(f"No other terminal could ask for a report: {error}.")
        self._on = True
        folder = "" if self._place is None else self._place.path(REQUESTS)
        listen(os.fsencode(folder), self.called)
        if self._place is not None and standby() is not None:
            self._place.wake()  # it may wait for the end of a recording

    def next_step(self, count: int) -> int:
        return count + 1 if self._asked or self._signals else sys.maxsize

    def at_step(self, count: int) -> None:
        if self._asked or self._signals:
            with self._aside():
                self._make(count)

    def end(self, count: int) -> None:
        """Listen no more; requests without an answer learn from the folder's end."""
        if not self._on:
            return
        self._on = False
        listen_never()
        if acquired(self._making, _PATIENCE_S):
            self._making.release()
        waiting = standby()
        if waiting is not None:
            waiting.resume()
        elif self._place is not None:
            self._place.remove()

    def forget(self) -> None:
        """Leave the folder to the parent."""
        self._on = False
        self._place = None
        listen_never()

    # -- in the extension's thread -----------------------------------------------

    def called(self, signals: int) -> int | None:
        """Take requests; return the time in ns after which to call this again, or None."""
        if not self._on:
            return None
        waiting = standby()
        # The recording may be that of an attach, whose end it knows.
        attached_ns = None if waiting is None else waiting.called(0)
        due = [ns for ns in (attached_ns, self._called(signals), self._also()) if ns is not None]
        return min(due, default=None)

    def _called(self, signals: int) -> int | None:
        again = self._take_requests()
        if signals:
            self._signals += signals
        if not self._asked and not self._signals:
            self._since = 0.0
            return _AGAIN_NS if again else None
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since < _STEP_S:
            self._soon()
        else:
            self._make(None)
            self._since = 0.0
        return _SOON_NS

    def _take_requests(self) -> bool:
        """Note the requests; answer those for a status."""
        place = self._place
        # A standby takes the others: one that comes after its look waits for the next.
        kinds = (REPORT, WATCH, ATTACH, DETACH) if standby() is None else (REPORT, WATCH)
        found = {} if place is None else place.take(kinds)
        if place is None or not found:
            return False
        watched = False
        for name, (kind, _) in found.items():
            if kind == REPORT:
                self._asked.append(name)
            elif kind == WATCH:
                watched = True
            elif kind == ATTACH:
                self._answer(name, error=RECORDS.format(os.getpid()))
        if watched:
            try:
                place.put(self._status.now(), STATUS)
            except own_errors() as error:
                with dropped(OSError):
                    place.put({"error": f"{type(error).__name__}: {error}"[:300]}, STATUS)
        return True

    # -- in either thread --------------------------------------------------------

    def _make(self, step: int | None) -> None:
        """Write a report for all who have asked so far; ``step``: between two of them."""
        if not self._making.acquire(blocking=False):
            return
        try:
            asked, self._asked = self._asked, []
            signals, self._signals = self._signals, 0
            if asked or signals:
                self._write(asked, signals, step)
        finally:
            self._making.release()

    def _write(self, asked: list[str], signals: int, step: int | None) -> None:
        place, written = self._place, ""
        try:
            data = self._packed()
            paths = [] if place is None else [place.path(NOW)]
            if signals and self.output:
                paths.append(self._in_output())
            for path in paths:
                with atomic_write(path) as stream:
                    stream.write(data)
                written = path
        except own_errors() as error:
            problem = f"{type(error).__name__}: {error}"[:300]
            for name in asked:
                self._answer(name, error=f"the process could not make the report: {problem}")
            if signals:
                self._faults.log(f"The report that a signal asked for was not written: {problem}")
            return
        for name in asked:
            self._answer(name, step=step)
        if signals and written:
            steps = "" if step is None else f" ({plural(step, 'step')})"
            self._faults.log(
                f"fastprof wrote the run so far{steps} to {written}; `fastprof report "
                f"{written}` shows it."
            )

    def _packed(self) -> bytes:
        from fastprof.read.fprof import write_snapshot

        stream = io.BytesIO()
        write_snapshot(self._snapshot(), stream)
        return stream.getvalue()

    def _in_output(self) -> str:
        from fastprof.session.output.files import path_of_rank

        return path_of_rank(os.path.join(self.output, NOW), self._identity)

    def _answer(self, name: str, **answer: Any) -> None:
        place = self._place
        if place is not None:
            with dropped(OSError):  # whoever asks gives up after some time
                place.put(answer, ANSWERS, name)
