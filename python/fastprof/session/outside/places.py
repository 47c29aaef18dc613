"""The folders in which processes announce themselves, one per process of this user.

They are in ``/tmp/fastprof-UID``, which this user alone may enter::

    /tmp/fastprof-1000/4711-81234567/   number of the process and its start
        process.json                    what it is
        requests/                       one file each, from whoever asks
        answers/                        one file each, from the process
        now.fprof, status.json          what was asked for

A folder is no proof: its process may have died and its number may belong to another one.  So its
start is compared with the kernel's.
"""

import errno
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from fastprof.errors import FastprofError
from fastprof.fileio import atomic_write, read_bounded
from fastprof.guards import dropped, own_errors

#: Names the folder; ``0``: processes do not announce themselves.
VARIABLE = "FASTPROF_PROCESSES_DIR"
REQUESTS, ANSWERS = "requests", "answers"
ABOUT = "process.json"
#: The report of a run that goes on, and its status.
NOW, STATUS = "now.fprof", "status.json"
#: Kinds of requests.
REPORT, WATCH, ATTACH, DETACH = "report", "watch", "attach", "detach"
#: Modes of a process; a temporary standby ends with one recording.
RUN, STANDBY, TEMPORARY = "run", "standby", "temporary"

_MOST_BYTES = 1 << 16
_FOLDER = re.compile(r"([0-9]{1,10})-([0-9]{1,20})", re.ASCII)
_REQUEST = re.compile(r"([a-z]{1,10})-[0-9a-f]{16}", re.ASCII)
#: Index of the start among the fields of /proc/PID/stat, counted from the state.
_BEGAN = 19


class NoFolderError(FastprofError, OSError):
    """The folder of this user's processes cannot be used."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has announced itself.

    ``began`` is its start in ticks since the boot, ``space`` names the kernel's numbering of
    processes, which a container has for itself.  ``mode`` is one of those above.  ``output`` is the
    folder of its files, or empty.  ``signal`` names the one that asks for a report, if any.
    """

    pid: int
    began: int
    space: str
    mode: str
    program: str
    python: str
    fastprof: str
    output: str = ""
    signal: str = ""
    rank: int = 0
    world_size: int = 1


def top_folder() -> str | None:
    """Return the folder of this user's processes, which need not exist; None: there is none."""
    named = os.environ.get(VARIABLE)
    if named == "0" or not hasattr(os, "geteuid"):
        return None
    return named or f"/tmp/fastprof-{os.geteuid()}"


def check_top(top: str) -> None:
    """Check that nobody else can write to, or read in, the folder.

    Raises:
        FileNotFoundError: it does not exist.
        NoFolderError: it is a link or a file, belongs to another user, or others may enter it.
    """
    found = os.lstat(top)
    if not stat.S_ISDIR(found.st_mode):
        raise NoFolderError(f"{top!r} is no directory: remove it, or set {VARIABLE} to another one")
    if found.st_uid != os.geteuid():
        raise NoFolderError(
            f"{top!r} is another user's: set {VARIABLE} to a directory that belongs to you"
        )
    if found.st_mode & 0o077:
        raise NoFolderError(
            f"other users may enter {top!r}: `chmod 700` it, or set {VARIABLE} to another one"
        )


def state_of(pid: int) -> tuple[str, int] | None:
    """Return the kernel's letter for the state of a process and its start; None: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            # The name before these fields is in parentheses and may contain any character.
            after = stream.read().rpartition(b")")[2].split()
        return after[0].decode("ascii"), int(after[_BEGAN])
    except own_errors(OSError, ValueError, IndexError):
        return None


def numbering() -> str:
    """Return the name of the kernel's numbering of processes; empty: unknown."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except own_errors(OSError):
        return ""


def runs(process: Process) -> bool:
    """Return whether the process still runs; one of another numbering is not seen here."""
    found = state_of(process.pid)
    return (
        process.space == numbering()
        and found is not None
        and found[1] == process.began
        and found[0] not in "ZX"
    )


class Place:
    """The folder of one process."""

    def __init__(self, top: str, pid: int, began: int) -> None:
        self.folder = os.path.join(top, f"{pid}-{began}")

    def path(self, *names: str) -> str:
        """Return the path of a file in it."""
        return os.path.join(self.folder, *names)

    def make(self, about: Process) -> None:
        """Announce the process.

        Raises:
            OSError: that is not possible.
        """
        for name in ("", REQUESTS, ANSWERS):
            os.makedirs(self.path(name), mode=0o700, exist_ok=True)
        self.put(asdict(about), ABOUT)

    def put(self, value: Mapping[str, Any], *names: str) -> None:
        """Write a file of JSON, completely or not at all; do not wait for the disk.

        Raises:
            OSError: it cannot be written.
        """
        with atomic_write(self.path(*names), durable=False) as stream:
            stream.write(json.dumps(value).encode("ascii"))

    def get(self, *names: str) -> dict[str, Any] | None:
        """Return the content of a file of :meth:`put`; None: there is none, or another one."""
        try:
            value = json.loads(read_bounded(self.path(*names), max_bytes=_MOST_BYTES))
        except own_errors(OSError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def requests(self) -> dict[str, str]:
        """Return the names of the requests and their kinds."""
        found = {}
        with dropped(OSError):
            for name in sorted(os.listdir(self.path(REQUESTS))):
                match = _REQUEST.fullmatch(name)
                if match is not None:
                    found[name] = match[1]
        return found

    def take(self, kinds: Sequence[str]) -> dict[str, tuple[str, dict[str, Any]]]:
        """Remove the requests of these kinds; return them by name, each with what is in it."""
        taken = {}
        for name, kind in self.requests().items():
            if kind in kinds:
                taken[name] = kind, self.get(REQUESTS, name) or {}
                with dropped(OSError):
                    os.unlink(self.path(REQUESTS, name))
        return taken

    def wake(self) -> None:
        """Let the listener of this place look soon."""
        with dropped(OSError):
            os.utime(self.path(REQUESTS))

    def remove(self) -> None:
        """Remove what fastprof has made."""
        for below in (REQUESTS, ANSWERS, ""):
            with dropped(OSError):
                for name in os.listdir(self.path(below)):
                    with dropped(OSError):
                        os.unlink(self.path(below, name))
            with dropped(OSError):
                os.rmdir(self.path(below))


def announce(about: Process, top: str | None = None) -> Place | None:
    """Let other processes of this user find this one; None: that is switched off.

    Args:
        about: this process.
        top: the folder of this user's processes; None: the usual one.

    Raises:
        OSError: its folder cannot be made.
    """
    top = top or top_folder()
    if top is None:
        return None
    with suppress(FileExistsError):
        os.mkdir(top, 0o700)
    check_top(top)
    ours = Place(top, about.pid, about.began)
    for process, place in _folders(top) if not os.path.isdir(ours.folder) else ():
        # Not one of another numbering: it may run in a container.
        if process.space == about.space and not runs(process):
            place.remove()
    ours.make(about)
    return ours


def processes() -> list[tuple[Process, Place]]:
    """Return the running processes of this user that have announced themselves, the newest first.

    Raises:
        NoFolderError: the folder is not this user's alone.
    """
    top = top_folder()
    if top is None:
        raise NoFolderError(f"{VARIABLE} is 0: processes do not announce themselves")
    try:
        check_top(top)
    except FileNotFoundError:
        return []
    found = [(process, place) for process, place in _folders(top) if runs(process)]
    return sorted(found, key=lambda item: -item[0].began)


def _folders(top: str) -> Iterator[tuple[Process, Place]]:
    try:
        names = os.listdir(top)
    except own_errors(OSError):
        return
    for name in sorted(names):
        match = _FOLDER.fullmatch(name)
        if match is None:
            continue
        place = Place(top, int(match[1]), int(match[2]))
        process = process_from(place.get(ABOUT))
        if process is not None and f"{process.pid}-{process.began}" == name:
            yield process, place


def process_from(value: Mapping[str, Any] | None) -> Process | None:
    """Return the process that ``value`` describes; None: it describes none."""
    if value is None:
        return None
    kept = {}
    for field in fields(Process):
        given = value.get(field.name, field.default)
        if type(given) is not field.type:
            return None
        kept[field.name] = given
    return Process(**kept)


def is_full(error: OSError) -> bool:
    """Return whether the disk, or the user's part of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
