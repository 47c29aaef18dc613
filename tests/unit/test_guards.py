"""Guards: which exceptions stop at fastprof's own code, and which pass to the program."""

from __future__ import annotations

import ctypes
import functools
import json
import queue
import signal
import sys
import threading
import types
import unittest.mock
from collections.abc import Callable, Iterator
from pathlib import Path

import fastprof
import pytest
from fastprof.guards import dropped, is_from_outside, is_near_limit, own_errors
from helpers import run_child


class Limit(Exception):  # noqa: N818 - as programs name it
    pass


class Described(Exception):  # noqa: N818
    def __init__(self, text: str = "time is up") -> None:
        super().__init__(text)


def raises(signum: int, frame: object) -> None:
    raise Limit


def forgets_its_frame(signum: int, frame: object) -> None:
    del frame
    raise Limit


class Handler:
    def __call__(self, signum: int, frame: object) -> None:
        raise Limit

    def method(self, *arguments: object) -> None:
        raise TimeoutError("time is up")

    def more(self, what: str, signum: int, frame: object) -> None:
        raise Limit(what)


def sets_another(signum: int, frame: object) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise Limit


def endless() -> Iterator[None]:
    while True:
        yield


def delegating() -> Iterator[None]:
    yield from endless()


def thrown(source: Callable[[], Iterator[None]]) -> None:
    generator = source()
    next(generator)
    generator.throw(Limit)  # type: ignore[attr-defined]


THROWN = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="looks like an exception that another thread sets"
)
HANDLERS: dict[str, Callable[[int, object], object]] = {
    "function": raises,
    "without its frame": forgets_its_frame,
    "object": Handler(),
    "method": Handler().method,
    "partial": functools.partial(Handler().more, "three"),
    "replaced": sets_another,
    "mock": unittest.mock.Mock(side_effect=Limit),
    "mock of a function": unittest.mock.create_autospec(raises, side_effect=Limit),
}


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, before)


def guarded(action: Callable[[], object]) -> bool:
    """Return whether a guard stops the exception of ``action``."""
    try:
        try:
            action()
        except own_errors():
            return True
    except Exception:
        return False
    raise AssertionError("nothing was raised")


def interrupted() -> None:
    signal.raise_signal(signal.SIGALRM)


@pytest.mark.parametrize("handler", HANDLERS)
def test_exceptions_of_signal_handlers_pass(alarm: None, handler: str) -> None:
    signal.signal(signal.SIGALRM, HANDLERS[handler])
    assert not guarded(interrupted)
    signal.signal(signal.SIGALRM, HANDLERS[handler])
    with pytest.raises((Limit, TimeoutError)), dropped(OSError, Limit):
        interrupted()


@pytest.mark.parametrize("kind", [Limit, Described, TimeoutError, RuntimeError])
def test_exceptions_set_by_another_thread_pass(kind: type[Exception]) -> None:
    api = ctypes.pythonapi.PyThreadState_SetAsyncExc
    ident = ctypes.c_ulong(threading.get_ident())

    def action() -> None:
        api(ident, ctypes.py_object(kind))
        for _ in range(10):
            pass

    assert not guarded(action)
    # The guard calls the C function itself: the guard's frame is the innermost one.
    assert not guarded(functools.partial(api, ident, ctypes.py_object(kind)))


def test_exceptions_of_a_trace_function_pass() -> None:
    def tracer(frame: object, event: str, arg: object) -> None:
        if event == "call":
            raise Limit

    def action() -> None:
        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            interrupted()
        finally:
            sys.settrace(before)

    assert not guarded(action)


@pytest.mark.parametrize(
    "action",
    [
        lambda: 1 / 0,
        lambda: next(iter(())),
        lambda: json.loads("{"),
        lambda: queue.SimpleQueue().get_nowait(),
        lambda: queue.Queue().get_nowait(),
        lambda: Path("/nonexistent/x").read_bytes(),
        lambda: [].pop(),
        lambda: "a".missing,  # type: ignore[attr-defined]
        lambda: raises(0, None),
        lambda: int("x"),
        pytest.param(lambda: thrown(endless), marks=THROWN),
        pytest.param(lambda: thrown(delegating), marks=THROWN),
    ],
)
def test_own_errors_stop(action: Callable[[], object]) -> None:
    assert guarded(action)
    with dropped():
        action()


@pytest.mark.parametrize("last", [-1, 1_000_000])
def test_errors_of_frames_without_instructions_stop(last: int) -> None:
    # As compiled code makes them, for tracebacks only.
    traceback = types.TracebackType(None, sys._getframe(), last, 1)
    assert not is_from_outside(NotImplementedError().with_traceback(traceback))


def test_other_kinds_pass() -> None:
    with pytest.raises(ZeroDivisionError), dropped(OSError):
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt), dropped():
        raise KeyboardInterrupt
    assert not is_from_outside(None)
    assert not is_from_outside(ValueError())  # never raised


def test_an_audit_hook_that_refuses_to_show_frames_is_no_exception_from_outside() -> None:
    code = """if True:
        import signal, sys
        from fastprof.guards import dropped
        refuse = fire = False
        def handler(number, frame): raise TimeoutError
        signal.signal(signal.SIGALRM, handler)
        def hook(event, args):
            global fire
            if event == "object.__getattr__" and refuse: raise RuntimeError
            if event == "object.__getattr__" and fire:
                fire = False
                signal.raise_signal(signal.SIGALRM)
        sys.addaudithook(hook)
        refuse = True
        with dropped(): raise ValueError
        with dropped(): [].pop()
        refuse = False
        try:
            with dropped():
                fire = True
                [].pop()
        except TimeoutError:
            print("passed")
    """
    assert run_child(code).check().stdout == "passed\n"


def test_no_guard_inside_the_program_stops_every_exception() -> None:
    package = Path(fastprof.__file__).parent
    found = []
    for folder in ("session", "integrations", "capture"):
        for path in sorted((package / folder).rglob("*.py")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if "except Exception" in line or "suppress(Exception" in line:
                    found.append(f"{path.relative_to(package)}:{number}: {line.strip()}")
    assert not found


def test_p9_a_recursion_error_of_code_that_recurses_itself_is_a_failure() -> None:
    def down(n: int) -> None:
        if n:
            down(n - 1)
        raise RecursionError

    found = []
    for depth in (0, 50, 200):
        try:
            down(depth)
        except RecursionError as error:
            found.append(is_near_limit(error))
    assert found == [True, True, False]
    assert not is_near_limit(ValueError())
