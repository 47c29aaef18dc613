"""Writes the recording, however the profiled program ends.

The end of the program, an exception, ``sys.exit`` and Ctrl-C pass through the ``with`` statement.
``os._exit`` and SIGTERM do not, so this module catches them while the program runs: it wraps
``os._exit``, and handles SIGTERM if its action was the default one.  Afterwards the process dies as
it would have died.  If the main thread does not return from C code, such as a collective, it dies
5 s after SIGTERM and writes nothing.  The program still sees the default action: trainers call a
handler that they find from their own, with which the process would have gone on.

A forked child gets the program's own handlers back and never writes anything.
"""

import _thread
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from fastprof.cli.messages import on_lines
from fastprof.own_imports import Protected
from fastprof.session.patching.collector import collector_paused

#: The signal whose handler in Python SIGTERM runs; nothing sends it.  0: this platform has none.
_CARRIER: Any = getattr(signal, "SIGRTMAX", 1) - 1

#: How long the main thread waits while another thread saves and ends the process.
_MAIN_WAITS_S = 20.0


class Endings:
    """Context manager: calls ``save`` exactly once, when the program in it ends.

    Args:
        stop: stops the recording; called before ``save`` and before any other code of fastprof, so
            that the recording has as little of it as possible.
        save: writes the recording.  Its exceptions go to ``sys.stderr`` in one line: they do not
            change how the program ends.
    """

    def __init__(self, stop: Callable[[], None], save: Callable[[], None]) -> None:
        #: Stops the recording.
        self.stop = stop
        self._save = save
        self._pid = os.getpid()
        self._lock = threading.RLock()  # SIGTERM may come while this thread holds it
        self._saver: int | None = None  # the thread that saves
        self._claimed = False
        self._terminated = False
        self._leaving = False  # another thread has called os._exit
        #: The program reached its end or called ``sys.exit(0)``.
        self.in_order = False
        self._real_exit = os._exit
        self._installed: Any = None
        #: The functions of the C extension, while SIGTERM is handled.
        self._signal: Any = None

    def __enter__(self) -> "Endings":  # noqa: PYI034 - Self is new in 3.11
        stop, end, real_exit = self.stop, self._end, self._real_exit

        def _exit(status: int) -> NoReturn:
            self.in_order = False
            self._hold_main_thread()
            stop()
            end()
            real_exit(status)

        # A pickle has it by name: a process that is started with it calls its own.
        _exit.__module__, _exit.__qualname__ = "os", "_exit"
        self._installed = _exit
        os._exit = _exit
        # Only the main thread may set a handler, and only the default action may be replaced: a
        # program started with SIGTERM ignored keeps ignoring it.
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            and _CARRIER
            and signal.getsignal(_CARRIER) is signal.SIG_DFL
        ):
            from fastprof.capture import end_signal  # needs the C extension

            signal.signal(_CARRIER, self._on_sigterm)
            if end_signal.handle_sigterm(_CARRIER):
                self._signal = end_signal
            else:
                signal.signal(_CARRIER, signal.SIG_DFL)
        # The registration lasts as long as the process.  It must not keep the recording, and with
        # it the program's functions and their globals, until after the interpreter's end.
        here = weakref.ref(self)

        def restore() -> None:
            endings = here()
            if endings is not None:
                endings._restore()

        os.register_at_fork(after_in_child=restore)
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.stop()
            self._end()
        finally:
            self._restore()

    def may_wait(self) -> bool:
        """Return whether the end may take seconds: no signal and no error ended the program."""
        return self.in_order

    def cancel(self) -> None:
        """Save nothing: the program was not started."""
        self._claimed = True

    def _end(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:  # waits for another thread that saves (os._exit)
            self._end_locked()

    def _end_locked(self) -> None:
        self._saver = threading.get_ident()
        try:
            if self._claimed:
                return
            self._claimed = True
            try:
                with collector_paused(), Protected():
                    self._save()
            except Exception as error:
                complain(f"the profile could not be written: {error}")
        finally:
            self._saver = None
            if self._terminated and threading.current_thread() is threading.main_thread():
                self._die()  # in another thread it is os._exit, which follows

    def _hold_main_thread(self) -> None:
        """Let the main thread wait for the end of the process, which this thread ends.

        Alone it would not run on either.  Other threads cannot be stopped.
        """
        if self._signal is not None and threading.current_thread() is not threading.main_thread():
            self._leaving = True
            _thread.interrupt_main(_CARRIER)

    def _on_sigterm(self, signum: int, frame: object) -> None:
        self._signal.sigterm_taken()
        if self._leaving:
            # Not for ever: it may have a lock that the saving thread needs.
            never = threading.Lock()
            never.acquire()
            never.acquire(timeout=_MAIN_WAITS_S)
            return
        self.in_order = False
        if self._saver == threading.get_ident():
            # It came during a save, which ends the process when it is done.
            self._terminated = True
            return
        self.stop()
        self._end()
        self._die()

    def _die(self) -> None:
        _flush()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _restore(self) -> None:
        """Restore the actions that are still fastprof's: the program may have set others."""
        if os._exit is self._installed:
            os._exit = self._real_exit
        if self._signal is not None:
            self._signal.leave_sigterm()
            # Equal, not identical: a bound method is a new object each time.
            if signal.getsignal(_CARRIER) == self._on_sigterm:
                signal.signal(_CARRIER, signal.SIG_DFL)
            self._signal = None


def complain(message: str) -> None:
    """Write a message to ``sys.stderr``, in whatever state that is.

    It is one line, but in a terminal it wraps at words.
    """
    line = " ".join(message.split())
    try:
        sys.stderr.write(f"{on_lines(f'fastprof: {line}', sys.stderr)}\n")
        sys.stderr.flush()  # the last: the program's own object may have none
    except Exception:
        pass


def said(error: Exception) -> str:
    """Return an error in a reader's words: ``no such file: x``, not ``[Errno 2] ...``."""
    if not isinstance(error, OSError) or error.filename is None or error.strerror is None:
        return str(error)
    path = os.fsdecode(error.filename)
    name, above = (ascii(p)[1:-1] for p in (path, os.path.dirname(path)))
    if isinstance(error, FileNotFoundError):
        missing = bool(above) and not os.path.isdir(os.path.dirname(path))
        return f"no such directory: {above}" if missing else f"no such file: {name}"
    if isinstance(error, PermissionError):
        return f"no permission: {name}"
    return f"{name}: {error.strerror[:1].lower()}{error.strerror[1:]}"


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
