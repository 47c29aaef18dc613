"""A process that records nothing until another terminal asks: ``FASTPROF=standby``.

``fastprof attach PID`` asks.  What the recording needs is imported in fastprof's thread; the main
thread prepares it in short pieces, starts and stops it between two instructions of the program, and
fastprof's thread writes the report::

    main thread      ... | piece | ... | piece | ... | start | recorded ............ | stop | ...
    fastprof's    import                                                         write, answer
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from fastprof.capture.listener import call_in_main, listen, listen_never
from fastprof.clock import time
from fastprof.fileio import atomic_write
from fastprof.guards import dropped, own_errors
from fastprof.session import current
from fastprof.session.outside.about import about
from fastprof.session.outside.places import (
    ANSWERS,
    ATTACH,
    DETACH,
    NOW,
    REQUESTS,
    STANDBY,
    TEMPORARY,
    Place,
    announce,
)

if TYPE_CHECKING:
    from fastprof.snapshot import Snapshot

#: The answer to who wants to attach to a process that records.
RECORDS = (
    "process {0} is recorded already: `fastprof report {0}` shows the run so far, `fastprof watch "
    "{0}` what it does now"
)

_SOON_NS = 100_000_000
#: A process that was not in standby before keeps its folder this long for the answer to be read.
_FETCH_S = 60.0
_MOST_S = 24 * 3600.0

_standby: Standby | None = None


def standby() -> Standby | None:
    """Return the standby of this process, if there is one."""
    found = _standby
    return found if found is not None and found.pid == os.getpid() else None


def begin(
    make: Callable[[], Recording], top: str | None = None, *, temporary: bool = False
) -> None:
    """Announce this process and wait; do nothing if it waits already.

    Args:
        make: makes a recording; called in fastprof's thread, because its imports take a while.
        top: the folder of this user's processes; None: the usual one.
        temporary: end after one recording.

    Raises:
        OSError: it cannot announce itself.
    """
    global _standby
    if standby() is None:
        made = Standby(make, top, temporary)
        made.resume()
        _standby = made
        atexit.register(made.end)


class Recording(Protocol):
    """What is recorded when it is asked for; the main thread starts and stops it."""

    def prepare(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def snapshot(self) -> Snapshot: ...


class Standby:
    """Waits, and records when it is asked."""

    def __init__(self, make: Callable[[], Recording], top: str | None, temporary: bool) -> None:
        self._make = make
        self.pid = os.getpid()
        self._top = top
        self._temporary = temporary
        self._place: Place | None = None
        #: Name of the request that is served, and when its recording ends.
        self._name = ""
        self._until = 0.0
        #: None: not started, or over.
        self._recording: Recording | None = None
        #: What the main thread does next before that.
        self._next: Callable[[], Callable[[], object] | None] | None = None
        self._stopped = False
        self._done_at: float | None = None

    def resume(self) -> None:
        """Announce the process, and listen; also when a run has ended.

        Raises:
            OSError: it cannot announce itself.
        """
        self._place = announce(
            about(TEMPORARY if self._temporary else STANDBY, "", 0, 1), self._top
        )
        if self._place is not None:
            listen(os.fsencode(self._place.path(REQUESTS)), self.called)
            if self._name:
                self._wake()

    def end(self) -> None:
        """Wait no more."""
        global _standby
        if self.pid != os.getpid():
            return
        if _standby is self:
            _standby = None
        place, self._place = self._place, None
        if place is not None:
            listen_never()
            place.remove()
        with dropped():
            atexit.unregister(self.end)

    # -- in the extension's thread ---------------------------------------------------

    def called(self, signals: int) -> int | None:
        """Take requests, and go on with the one that is served; return the time to the next call.

        A run calls this, too, while this standby records: it has the thread then.
        """
        place = self._place
        if place is None:
            return None
        for name, (kind, asked) in place.take((ATTACH, DETACH)).items():
            if kind == DETACH:
                self._give_up(str(asked.get("name")))
            elif self._name:
                self._answer(name, error="another `fastprof attach` records this process now")
            elif current.running() is not None:
                self._answer(name, error=RECORDS.format(self.pid))
            else:
                self._begin(name, asked)
        if self._done_at is not None:
            return self._may_end(place)
        if not self._name:
            return None
        if self._stopped:
            self._finish()
        elif self._next is not None:
            self._go_on(self._next)
        elif self._recording is not None and time.monotonic() >= self._until:
            self._until = time.monotonic() + 1.0  # the main thread may be in a long call
            call_in_main(lambda: self._stop)
        return _SOON_NS

    def _give_up(self, name: str) -> None:
        """End the recording of a request that nobody waits for any more."""
        if name == self._name and self._recording is None:
            self._name = ""
        elif name == self._name:
            self._until = 0.0

    def _begin(self, name: str, asked: dict[str, Any]) -> None:
        self._name, self._stopped, self._done_at = name, False, None
        try:
            seconds = min(_MOST_S, max(0.1, float(asked.get("seconds", 30.0))))
            recording = self._make()
        except own_errors() as error:
            self._fail(error)
            return
        self._go_on(lambda: self._start(name, seconds, recording))

    def _go_on(self, work: Callable[[], Callable[[], object] | None]) -> None:
        self._next = None
        if not call_in_main(work):
            self._fail(RuntimeError("the interpreter has too many pending calls"))

    def _finish(self) -> None:
        from fastprof.read.fprof import write_snapshot

        place, recording = self._place, self._recording
        self._recording = None
        try:
            if place is not None and recording is not None:
                with atomic_write(place.path(NOW)) as stream:
                    write_snapshot(recording.snapshot(), stream)
            self._answer(self._name)
        except own_errors() as error:
            self._fail(error)
        self._name = ""
        self._done_at = time.monotonic()

    def _may_end(self, place: Place) -> int | None:
        """End if this process was not in standby before, when the answer has been read."""
        waited = time.monotonic() - (self._done_at or 0.0)
        if not self._temporary:
            self._done_at = None
            return None
        if os.listdir(place.path(ANSWERS)) and waited < _FETCH_S:
            return _SOON_NS
        self.end()
        return None

    def _fail(self, error: BaseException) -> None:
        self._answer(self._name, error=f"{type(error).__name__}: {error}"[:300])
        self._name, self._recording = "", None
        self._done_at = time.monotonic()

    def _answer(self, name: str, **answer: Any) -> None:
        place = self._place
        if place is not None:
            with dropped(OSError):
                place.put(answer, ANSWERS, name)

    def _wake(self) -> None:
        if self._place is not None:
            self._place.wake()

    # -- in the main thread ------------------------------------------------------------

    def _start(
        self, name: str, seconds: float, recording: Recording
    ) -> Callable[[], object] | None:
        # What is returned runs when no frame of this method is open any more.
        if self._name != name:
            return None
        return lambda: self._started(name, seconds, recording)

    def _started(self, name: str, seconds: float, recording: Recording) -> None:
        try:
            if current.running() is not None:
                raise RuntimeError("the program has started a run of its own meanwhile")
            if recording.prepare():
                # The program goes on, until fastprof's thread looks again.
                self._next = lambda: self._start(name, seconds, recording)
                return
            recording.start()
            self._until = time.monotonic() + seconds
            self._recording = recording
        except own_errors() as error:
            self._fail(error)
        self._wake()

    def _stop(self) -> None:
        recording = self._recording
        if recording is None or self._stopped:
            return
        try:
            recording.stop()
        finally:
            self._stopped = True
            self._wake()
