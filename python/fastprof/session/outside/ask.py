"""Asks a running process of this user, and waits for its answer within a time limit."""

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from fastprof.clock import time
from fastprof.errors import FastprofError
from fastprof.report.figures import plural
from fastprof.session.outside.places import (
    ANSWERS,
    ATTACH,
    DETACH,
    REQUESTS,
    RUN,
    Place,
    Process,
    is_full,
    processes,
    runs,
    state_of,
    top_folder,
)

#: Seconds between two looks for the answer.
_LOOK_S = 0.05
#: A process that is stopped is given up earlier: SIGSTOP may be followed by SIGCONT.
_STOPPED_S = 2.0
_STOPPED = "Tt"


class NoAnswerError(FastprofError, ValueError):
    """No process answers; the message says why, and what to do."""


class EndedError(NoAnswerError):
    """The process, its run or its standby has ended meanwhile."""


def named(text: str) -> tuple[Process, Place]:
    """Return the process that a number names.

    Raises:
        NoAnswerError: it cannot be asked; the message says why.
        OSError: the folder of this user's processes cannot be used.
    """
    pid = int(text)
    for process, place in processes():
        if process.pid == pid:
            return process, place
    raise NoAnswerError(_why_unknown(pid))


def recorded(process: Process) -> None:
    """Check that a process records something.

    Raises:
        NoAnswerError: it is in standby.
    """
    if process.mode != RUN:
        raise NoAnswerError(
            f"process {process.pid} is in standby and records nothing: `fastprof attach "
            f"{process.pid}` records it for a while"
        )


def _why_unknown(pid: int) -> str:
    state = state_of(pid)
    if state is None or state[0] == "Z":
        return f"there is no process {pid} here (a container has other numbers)"
    with suppress(OSError):
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return (
                f"process {pid} is another user's: only that user can ask it, for example by "
                "`sudo -u`"
            )
    return (
        f"process {pid} has not announced itself in {top_folder()}: it records nothing now "
        "(`fastprof run`, FASTPROF=1 or fastprof.Profiler do), it is in a container, or its "
        "fastprof is older"
    )


def processes_or_none() -> list[tuple[Process, Place]]:
    """Return the running processes of this user; none: also if their folder cannot be used."""
    try:
        return processes()
    except (OSError, FastprofError):
        return []


def of_folder(folder: str) -> list[tuple[Process, Place]]:
    """Return the running processes that write their files to ``folder``, by rank."""
    here = os.path.realpath(folder)
    ours = [
        item
        for item in processes_or_none()
        if item[0].output and os.path.realpath(item[0].output) == here
    ]
    return sorted(ours, key=lambda item: item[0].rank)


def send(
    process: Process, place: Place, kind: str, content: Mapping[str, Any] | None = None
) -> str:
    """Put a request with this content; return its name.

    Raises:
        NoAnswerError: the process has just ended, or the disk is full.
    """
    name = f"{kind}-{secrets.token_hex(8)}"
    try:
        place.put(content or {}, REQUESTS, name)
    except OSError as error:
        if is_full(error):
            where = os.path.dirname(place.folder)
            raise NoAnswerError(f"the disk of {where} is full: no request can be put") from None
        raise EndedError(ended(process)) from None
    return name


def wait(
    process: Process, place: Place, limit_s: float, answer: Callable[[], dict[str, Any] | None]
) -> dict[str, Any]:
    """Return what ``answer`` returns as soon as it does.

    Gives up after ``limit_s``.

    Raises:
        NoAnswerError: the process ends, is stopped, or does not answer.
    """
    until = time.monotonic() + limit_s
    stopped_since: float | None = None
    while True:
        found = answer()
        if found is not None:
            return found
        now = time.monotonic()
        state = state_of(process.pid)
        if not runs(process) or state is None or not os.path.isdir(place.folder):
            raise EndedError(ended(process))
        stopped_since = (stopped_since or now) if state[0] in _STOPPED else None
        if stopped_since is not None and now - stopped_since > _STOPPED_S:
            raise NoAnswerError(
                f"process {process.pid} is stopped (state {state[0]}) and answers when it goes on: "
                f"`kill -CONT {process.pid}`"
            )
        if now > until:
            raise NoAnswerError(
                f"process {process.pid} has not answered within {plural(round(limit_s), 'second')}:"
                " one long call of C code keeps the interpreter's lock, the machine is very busy, "
                f"or the disk of {os.path.dirname(place.folder)} is full"
            )
        time.sleep(_LOOK_S)


def request(
    process: Process,
    place: Place,
    kind: str,
    limit_s: float,
    content: Mapping[str, Any] | None = None,
    then: Callable[[], object] = lambda: None,
) -> None:
    """Ask, wait for the answer, and call ``then`` while the process knows that it is not yet read.

    Raises:
        NoAnswerError: there is none, or the process could not do it.
    """
    name = send(process, place, kind, content)
    try:
        answer = wait(process, place, limit_s, lambda: place.get(ANSWERS, name))
        if "error" in answer:
            raise NoAnswerError(str(answer["error"])[:400])
        then()
    except BaseException:
        if kind == ATTACH:  # what has begun ends
            with suppress(OSError, FastprofError):
                send(process, place, DETACH, {"name": name})
        raise
    finally:
        for below in (REQUESTS, ANSWERS):
            with suppress(OSError):
                os.unlink(place.path(below, name))


def ended(process: Process) -> str:
    """Return the sentence on a process that has ended meanwhile."""
    saved = f"; its files are in {process.output}" if process.output else ""
    return f"process {process.pid} ({process.program}) has ended its run{saved}"
