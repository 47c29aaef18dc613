"""The one run of this process: its holder, and events that end it besides ``stop()``.

Sections, the profiling hook and the clock belong to the process, so it has one run at a
time.  A fork ends the run in the child, without a message; the exit of the interpreter ends it like
``stop()``, so that no recorded data is lost.
"""

import atexit
import contextlib
import os
import sys
import threading
from typing import Protocol

from fastprof.errors import StateError
from fastprof.own_builtins import put_back, take_away


class Holder(Protocol):
    """A run: see :class:`fastprof.session.run.Run`."""

    gives_way: bool
    started_at: str
    facts: dict[str, str | float]

    def stop(self) -> None: ...
    def stop_functions(self, why: str) -> None: ...
    def stop_at_exit(self) -> None: ...
    def stop_in_child(self) -> None: ...


# Recursive, because a signal handler may start or stop a run while the main code does.
_lock = threading.RLock()
_running: Holder | None = None
_hooks_set = False


def running() -> Holder | None:
    """Return the current run of this process."""
    return _running


def in_main_thread() -> bool:
    """Return whether this is the thread in which Python runs signal handlers and pending calls."""
    return threading.get_ident() == threading.main_thread().ident


def is_interactive() -> bool:
    """Return whether somebody types the program: a notebook, or a prompt."""
    return hasattr(sys, "ps1")


def claim(run: Holder) -> Holder | None:
    """Make ``run`` the process's run; return the run that it ended.

    It ends the run of FASTPROF=1.  In a notebook it ends any other: if a cell failed before its
    ``stop()``, nothing may be left that could stop that run.

    Raises:
        StateError: another run is active; the message says where it was started.
    """
    global _running, _hooks_set
    with _lock:
        if _running is not None and not (_running.gives_way or is_interactive()):
            raise StateError(
                f"another fastprof run is active, started at {_running.started_at}; "
                "end it, or call fastprof.stop(), before starting this one"
            )
        earlier, _running = _running, run
        if not _hooks_set:
            # Once per process: neither can be undone without a trace.
            os.register_at_fork(after_in_child=_after_fork_in_child)
            atexit.register(_at_exit)
            _hooks_set = True
    if earlier is not None:
        earlier.stop()
    return earlier


def release(run: Holder) -> None:
    """Forget ``run``, if it is the process's run."""
    global _running
    with _lock:
        if _running is run:
            _running = None


def free_functions() -> None:
    """Give the hook of FASTPROF=1's run to a function profiler that the program makes."""
    run = _running
    if run is not None and run.gives_way:
        run.stop_functions("the program started its own function profiler")


def caller() -> str:
    """Return ``file:line`` of the calling code outside fastprof."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] != "fastprof":
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _after_fork_in_child() -> None:
    global _lock, _running
    # A thread that does not exist here may have held the lock.
    _lock = threading.RLock()
    run, _running = _running, None
    if run is not None:
        run.stop_in_child()


def _at_exit() -> None:
    run = _running
    if run is None:
        return
    put_back()
    try:
        run.stop_at_exit()
        _keep_interrupt()
    finally:
        take_away()


def _keep_interrupt() -> None:
    """Let a process that Ctrl-C ended die by SIGINT, as it would have.

    CPython notes an interrupt that nobody handled, and forgets it whenever source text runs: the
    end of a run imports modules with named tuples and dataclasses, which are made of text.
    """
    if getattr(sys, "last_type", None) is not KeyboardInterrupt or hasattr(sys, "ps1"):
        return
    # A console in the program (code.interact) notes the errors of what is typed in the same place.
    tb = getattr(sys, "last_traceback", None)
    if tb is None or tb.tb_frame.f_back is not None:
        return
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")
