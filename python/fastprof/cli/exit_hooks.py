"""Writes the recording, however the profiled program ends.

The end of the program, an exception, ``sys.exit`` and Ctrl-C pass through the ``with`` statement.
``os._exit``, ``os.exec*`` and signals such as SIGTERM do not, so this module catches them while the
program runs: it wraps the functions, and handles the signals whose action was the default one.
Afterwards the process dies, or becomes the other program, as it would have.  Signals that come
during the save, such as a second Ctrl-C, wait for its end.  If the main thread does not return from
C code, such as a collective, it dies 5 s after the signal and writes nothing.
The program still sees the default action: trainers call a handler that they find from their own,
with which the process would have gone on.

A forked child gets the program's own handlers back and never writes anything.
"""

import _signal  # type: ignore[import-not-found]
import _thread
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fastprof.cli.messages import on_lines
from fastprof.clock import acquired, time
from fastprof.guards import dropped, own_errors
from fastprof.names import encodable, printable
from fastprof.own_builtins import put_back
from fastprof.own_imports import Protected
from fastprof.session import current
from fastprof.session.patching.collector import collector_paused
from fastprof.session.patching.replaced import Replaced

#: The signal whose handler in Python the others run; nothing sends it.  0: this platform has none.
_CARRIER: Any = getattr(signal, "SIGRTMAX", 1) - 1

#: How long the main thread waits while another thread saves and ends the process.
_MAIN_WAITS_S = 20.0

#: How long a handler waits for a save; later, Ctrl-C interrupts one that hangs.
_HELD_S = 20.0


class Held:
    """Makes the program's signal handlers wait; used in the main thread, where they run.

    One that raises, as Python's own for Ctrl-C does, would end a save half-way.

    Args:
        set_handler: sets a handler in Python and leaves the signal's action in C as it is.
    """

    def __init__(self, set_handler: Callable[[int, Any], object]) -> None:
        self._set = set_handler
        self._until = time.monotonic() + _HELD_S
        self._handlers: dict[int, Any] = {}
        self._came: dict[int, None] = {}

    def begin(self) -> None:
        """Begin; if the handler of a signal that came just before raises, do not."""
        try:
            for number in range(1, _signal.NSIG):
                handler = _signal.getsignal(number)
                # The carrier's handler waits anyway.
                if callable(handler) and number != _CARRIER:
                    self._handlers[number] = handler
                    self._set(number, self._note)
        except BaseException:
            self._give_back()
            raise

    def end(self) -> None:
        """Run the handlers of the signals that came; raise what the first of them raises."""
        self._give_back()
        first: BaseException | None = None
        for number in self._came:
            handler = _signal.getsignal(number)
            try:
                # Not another signal: what C code does with one, such as a wake-up, is done.
                if callable(handler):
                    handler(number, sys._getframe())
            except BaseException as error:
                first = first or error
        if first is not None:
            raise first

    def _note(self, number: int, frame: object) -> None:
        if time.monotonic() < self._until:
            self._came[number] = None
        else:
            self._handlers[number](number, frame)

    def _give_back(self) -> None:
        try:
            for number, handler in self._handlers.items():
                self._set(number, handler)
        except BaseException:  # of a handler that is back already
            self._give_back()
            raise


class Endings:
    """Context manager: calls ``save`` exactly once, when the program in it ends.

    Args:
        stop: stops the recording; called before ``save`` and before any other code of fastprof, so
            that the recording has as little of it as possible.
        save: writes the recording; returns what shows it, which Ctrl-C may interrupt, or None.  The
            exceptions of both go to ``sys.stderr`` in one line: they do not change how the program
            ends.
    """

    def __init__(
        self, stop: Callable[[], None], save: Callable[[], Callable[[], None] | None]
    ) -> None:
        self._stop = stop
        self._save = save
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a signal may come while this thread holds it
        self._held: Held | None = None  # while the main thread saves
        self._showing = False  # in the main thread
        self._claimed = False
        self._interrupted = False  # by Ctrl-C
        self._signal_came = 0  # during a save
        #: Held by another thread, which ends the process.
        self._leaving: threading.Lock | None = None
        #: The program reached its end or called ``sys.exit(0)``.
        self.in_order = False
        self._wrapped = Replaced()  # functions of os
        self._wrappers: list[Any] = []
        #: The functions of the C extension, while signals are handled.
        self._signal: Any = None

    def __enter__(self) -> "Endings":  # noqa: PYI034 - Self is new in 3.11
        from fastprof.capture import end_signal  # needs the C extension

        self._set_handler = end_signal.set_python_handler
        self._wrap("_exit")
        # The others, such as execvp, call these, with one folder of PATH after another.
        self._wrap("execv", _may_run)
        self._wrap("execve", _may_run)
        # Only the main thread may set a handler.  No signal ends process 1 by its default action.
        if (
            threading.current_thread() is threading.main_thread()
            and self._pid != 1
            and _CARRIER
            and signal.getsignal(_CARRIER) is signal.SIG_DFL
        ):
            signal.signal(_CARRIER, self._on_signal)
            if end_signal.handle_end_signals(_CARRIER):
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.end()
        finally:
            with dropped(BaseException):  # an audit hook's
                self._restore()
        if self._interrupted and kind is not KeyboardInterrupt:
            raise KeyboardInterrupt from None

    def stop(self) -> None:
        """Stop the recording, unless that is done or has failed."""
        try:
            self._stop()
        except own_errors(BaseException) as error:  # such as an audit hook's
            self._stop = lambda: None
            complain(f"the recording did not stop as it should: {_reason(error)}")

    def end(self) -> None:
        """Stop and save, unless that is done.

        To be called at the end of the ``with`` block: a signal may interrupt the first line of a
        function, and then that of ``__exit__`` does the same.
        """
        try:
            self._stop_and_save()
        except KeyboardInterrupt:
            self._interrupted = True

    def may_wait(self) -> bool:
        """Return whether the end may take seconds: no signal and no error ended the program."""
        return self.in_order

    def cancel(self) -> None:
        """Save nothing: the program was not started."""
        self._claimed = True

    def _wrap(self, name: str, ends: Callable[..., bool] | None = None) -> None:
        """Wrap a function of ``os`` that ends the program, if ``ends`` of its arguments."""
        real = getattr(os, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() != self._pid or (ends is not None and not ends(*args, **kwargs)):
                return real(*args, **kwargs)
            put_back()
            self.in_order = False
            saves = not self._claimed
            leaving = self._hold_main_thread()
            try:
                self._stop_and_save(lets_go=ends is not None)
                return real(*args, **kwargs)
            except Exception as error:  # exec alone can fail: the program goes on
                if saves:
                    complain(f"profiling stopped: os.{name} failed: {error}")
                raise
            finally:
                self._let_go()
                if leaving is not None:
                    self._leaving = None
                    leaving.release()

        # A pickle has it by name: a process that is started with it calls its own.
        wrapper.__module__, wrapper.__name__, wrapper.__qualname__ = "os", name, name
        if real in os.supports_fd:
            os.supports_fd.add(wrapper)
        self._wrappers.append(wrapper)
        self._wrapped.put(os, name, wrapper)

    def hold(self) -> None:
        """Make signals wait from now on, until the recording is saved."""
        # A forked child saves nothing, and would never let go.
        if self._held is None and current.in_main_thread() and os.getpid() == self._pid:
            held = Held(self._set_handler)
            held.begin()
            self._held = held

    def _let_go(self) -> None:
        if not current.in_main_thread():
            return
        held, self._held = self._held, None
        if held is not None:
            if self._signal_came:
                self._die(self._signal_came)
            held.end()

    def _stop_and_save(self, *, lets_go: bool = True) -> None:
        """Do it; ``lets_go``: the signals that came meanwhile have their effect now."""
        try:
            self.stop()
            self._save_once(lets_go)
        except BaseException:  # of a signal's handler, perhaps before signals began to wait
            self._save_once(lets_go)
            raise

    def _save_once(self, lets_go: bool) -> None:
        if os.getpid() != self._pid:
            return
        # The lock waits for another thread that saves (os._exit, os.exec*).  Between the save and
        # the screen, which uses the same objects, a collection would visit all of them.
        with self._lock, collector_paused():
            show = None
            try:
                self.hold()
                if not self._claimed:
                    self._claimed = True
                    show = self._safely(self._save)
            finally:
                if lets_go:
                    self._let_go()
            if show is not None:
                self._show(show)
                del show  # before the collector is back

    def _show(self, show: Callable[[], None]) -> None:
        in_main = self._showing = current.in_main_thread()
        try:
            self._safely(show)
        finally:
            self._showing = False
            if self._signal_came and in_main:
                self._die(self._signal_came)

    def _safely(self, action: Callable[[], Any]) -> Any:
        try:
            with Protected():
                return action()
        except own_errors(BaseException) as error:
            complain(f"the profile could not be written: {_reason(error)}")
            return None

    def _hold_main_thread(self) -> "threading.Lock | None":
        """Let the main thread wait for the end of the process, which this thread ends.

        Alone it would not run on either.  Other threads cannot be stopped.

        Returns:
            the lock for which it waits; None: it does not wait.
        """
        if self._signal is None or threading.current_thread() is threading.main_thread():
            return None
        leaving = self._leaving = threading.Lock()
        leaving.acquire()
        _thread.interrupt_main(_CARRIER)
        return leaving

    def _on_signal(self, signum: int, frame: object) -> None:
        put_back()
        number = self._signal.end_signal_taken()
        leaving = self._leaving
        if leaving is not None:
            # Not for ever: this thread may have a lock that the saving thread needs.
            if not acquired(leaving, _MAIN_WAITS_S):
                return
            leaving.release()
        if not number:
            return
        self.in_order = False
        if self._held is not None or self._showing:
            # It came during a save, which ends the process when it is done.
            self._signal_came = number
            return
        ended_by(signal.Signals(number).name)
        try:
            self._stop_and_save()
        finally:
            self._die(number)

    def _die(self, number: int) -> None:
        _flush()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)  # no audit hook can refuse it
        os.kill(os.getpid(), number)  # this thread blocks it

    def _restore(self) -> None:
        """Restore the actions that are still fastprof's: the program may have set others."""
        if self._signal is not None:
            self._signal.leave_end_signals()
            # Equal, not identical: a bound method is a new object each time.
            if signal.getsignal(_CARRIER) == self._on_signal:
                signal.signal(_CARRIER, signal.SIG_DFL)
            self._signal = None
        os.supports_fd.difference_update(self._wrappers)
        self._wrapped.restore()


def ended_by(what: str) -> None:
    """Save in the run, if there is one, what ends the program: an exception or a signal."""
    run = current.running()
    if run is not None:
        run.facts["ended_by"] = what


def _may_run(path: Any = None, argv: Any = None, *_: Any, **__: Any) -> bool:
    """Return whether exec with these arguments may succeed."""
    try:
        return bool(argv) and (
            isinstance(path, int) or (os.path.isfile(path) and os.access(path, os.X_OK))
        )
    except (TypeError, ValueError):
        return False


def complain(message: str) -> None:
    """Write a message to ``sys.stderr``, in whatever state that is.

    It is one line, but in a terminal it wraps at words.
    """
    line = printable(" ".join(message.split()))
    try:
        shown = on_lines(f"fastprof: {line}", sys.stderr)
        sys.stderr.write(encodable(f"{shown}\n", sys.stderr))
        sys.stderr.flush()  # the last: the program's own object may have none
    except own_errors(BaseException):
        pass


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, Exception) else repr(error)


def said(error: Exception) -> str:
    """Return an error in a reader's words: ``no such file: x``, not ``[Errno 2] ...``."""
    if not isinstance(error, OSError) or error.filename is None or error.strerror is None:
        return str(error)
    path = os.fsdecode(error.filename)
    above = os.path.dirname(path)
    if isinstance(error, FileNotFoundError):
        missing = bool(above) and not os.path.isdir(above)
        return f"no such directory: {above}" if missing else f"no such file: {path}"
    if isinstance(error, PermissionError):
        return f"no permission: {path}"
    return f"{path}: {error.strerror[:1].lower()}{error.strerror[1:]}"


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):  # the process dies now
            stream.flush()
