"""``fastprof watch PID``: one running process, read-only; and the list of them."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from fastprof.cli.watch_screen import Seen, list_lines, process_lines
from fastprof.clock import time
from fastprof.session.environment.resident import resident_bytes
from fastprof.session.outside.ask import NoAnswerError, ended, send, wait
from fastprof.session.outside.places import RUN, STATUS, WATCH, Place, Process, runs
from fastprof.session.outside.status import Now, now_from

#: The list and one picture wait this long for an answer; then they show what is known without it.
_LIST_S = 3.0
_ONCE_S = 10.0


class ProcessWatch:
    """Watches one process."""

    def __init__(self, process: Process, place: Place) -> None:
        self.process = process
        self._place = place
        self._beat = -1
        self._now: Now | None = None

    def ask(self) -> None:
        """Ask for a status.

        Raises:
            NoAnswerError: the process has ended.
        """
        send(self.process, self._place, WATCH)

    def look(self) -> bool:
        """Read the last status; return whether it is new.

        Raises:
            NoAnswerError: the process could not make it, or is of another version.
        """
        value = self._place.get(STATUS)
        if value is None:
            return False
        if "error" in value:
            raise NoAnswerError(f"process {self.process.pid} has failed: {value['error']!s:.300}")
        now = now_from(value)
        if now.beat == self._beat:
            return False
        self._beat, self._now = now.beat, now
        return True

    def wait(self, limit_s: float) -> None:
        """Wait for a new status, at most ``limit_s``.

        Raises:
            NoAnswerError: there is none, or the process has ended.
        """
        wait(self.process, self._place, limit_s, lambda: {} if self.look() else None)

    def is_there(self) -> bool:
        """Return whether the run of the process goes on."""
        return runs(self.process) and os.path.isdir(self._place.folder)

    def seen(self) -> Seen:
        """Return the process as it is known now."""
        pid = self.process.pid
        return Seen(self.process, _age_s(self.process), resident_bytes(pid), self._now)


def _age_s(process: Process) -> float | None:
    try:
        with open("/proc/uptime") as stream:
            up = float(stream.read(100).split()[0])
        return max(0.0, up - process.began / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return None


def once_lines(process: Process, place: Place, width: int) -> list[str]:
    """Return one picture of a process.

    Raises:
        NoAnswerError: there is no answer; the message says why.
    """
    watch = ProcessWatch(process, place)
    watch.look()  # what another watcher has asked for is old
    watch.ask()
    watch.wait(_ONCE_S)
    return process_lines(watch.seen(), width, ascii_only=is_ascii())


def next_lines(watch: ProcessWatch, width: int) -> list[str]:
    """Return the next picture.

    Raises:
        NoAnswerError: the process has ended.
    """
    watch.ask()
    late = ""
    try:
        watch.wait(_LIST_S)
    except NoAnswerError as error:
        if not watch.is_there():
            raise NoAnswerError(ended(watch.process)) from None
        late = str(error)
    lines = process_lines(watch.seen(), width, ascii_only=is_ascii())
    return [*lines, *(["", f"{late[:1].upper()}{late[1:]}."] if late else [])]


def list_of(found: Sequence[tuple[Process, Place]], width: int) -> list[str]:
    """Return the list of the processes, each with its last status."""
    watches = [ProcessWatch(process, place) for process, place in found]
    waiting = []
    for watch in watches:
        if watch.process.mode != RUN:
            continue
        with suppress(NoAnswerError, ValueError):
            watch.look()
            watch.ask()
            waiting.append(watch)
    until = time.monotonic() + _LIST_S
    while waiting and time.monotonic() < until:
        time.sleep(0.05)
        for watch in list(waiting):
            try:
                new = watch.look()
            except ValueError:
                new = True
            if new:
                waiting.remove(watch)
    return list_lines([watch.seen() for watch in watches], width)


def is_ascii() -> bool:
    """Return whether the standard output cannot show bars."""
    try:
        "▁█".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeError, LookupError):
        return True
    return False
