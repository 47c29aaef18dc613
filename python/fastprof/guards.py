"""Guards: fastprof's own errors stop here; exceptions from outside pass to the program.

An exception can come into any code of a thread: from a signal handler of the program (a time limit
by SIGALRM), a debugger, or another thread (``PyThreadState_SetAsyncExc``).  While fastprof's code
runs, it is still the program's.  So a guard around code that runs inside the program is ``except
own_errors():``, not ``except Exception:``.  The traceback shows which of the two an exception is
(decision 33).
"""

import _signal  # type: ignore[import-not-found]
import sys
from functools import partial
from opcode import opmap
from types import FunctionType, MethodType, TracebackType
from typing import Any, TypeVar, overload

_E = TypeVar("_E", bound=BaseException)

#: An instruction that raises an error of its own frame, or at which ``throw`` does.  From 3.13 on
#: ``throw`` raises where the generator would go on, as an asynchronous exception does: that passes,
#: because an error that is lost is worse.
_RAISING = {
    opmap[name]
    for name in ("RAISE_VARARGS", "RERAISE", "YIELD_VALUE", "YIELD_FROM")
    if name in opmap
}

#: Frames of fastprof's below a guard.
_SHORT = 100

_VARARGS = 0x04  # a code object with *args; inspect.CO_VARARGS


@overload
def own_errors() -> tuple[type[Exception], ...]: ...
@overload
def own_errors(*kinds: type[_E]) -> tuple[type[_E], ...]: ...
def own_errors(*kinds: type[BaseException]) -> tuple[type[BaseException], ...]:
    """Return what an ``except`` clause catches: nothing if the current error is from outside.

    Args:
        kinds: the classes of errors to catch; none: ``Exception``.  After the program's end it is
            ``BaseException``: an audit hook may raise SystemExit into what fastprof does then.
    """
    return () if is_from_outside(sys.exc_info()[1]) else kinds or (Exception,)


class dropped:  # noqa: N801 - like contextlib.suppress
    """``contextlib.suppress`` for fastprof's own errors: those from outside pass.

    Args:
        kinds: as for :func:`own_errors`.
    """

    __slots__ = ("_kinds",)

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds or (Exception,)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return isinstance(error, self._kinds) and not is_from_outside(error)


def is_from_outside(error: BaseException | None) -> bool:
    """Return whether ``error`` was raised into the code that guards against it, not by it.

    An audit hook of the program may refuse to show frames: each time, so a second look tells what
    it raises from an exception that came from outside meanwhile.  Then the answer is no.

    Args:
        error: an exception that is handled now: its traceback begins in the handling frame.

    Raises:
        BaseException: it came from outside while this function ran.
    """
    try:
        return _was_raised_into(error)
    except BaseException as second:
        try:
            passes = _was_raised_into(second)
        except BaseException as third:
            passes = type(third) is not type(second)
        if passes:
            raise
        return False


def is_near_limit(error: BaseException) -> bool:
    """Return whether the program is almost as deep as the recursion limit allows.

    Then fastprof's code raises RecursionError, too, but it has not failed: it can go on where the
    program is less deep.  Code that recurses itself has a long traceback.
    """
    tb, frames = error.__traceback__, 0
    while tb is not None and frames <= _SHORT:
        tb, frames = tb.tb_next, frames + 1
    return isinstance(error, RecursionError) and frames <= _SHORT


def _was_raised_into(error: BaseException | None) -> bool:
    tb = None if error is None else error.__traceback__
    if error is None or tb is None:
        return False
    handlers = _handlers()
    while True:
        # A handler, or a debugger's trace function, is called with the frame that it interrupts.
        if tb.tb_frame.f_code in handlers or _is_given_its_caller(tb.tb_frame):
            return True
        if tb.tb_next is None:
            return _is_asynchronous(error, tb)
        tb = tb.tb_next


def _is_given_its_caller(frame: Any) -> bool:
    caller, code = frame.f_back, frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _VARARGS)
    names, values = code.co_varnames[:count], frame.f_locals
    if caller is None:
        return False
    for value in (values.get(name) for name in names):
        if value is caller or (type(value) is tuple and any(one is caller for one in value)):
            return True
    return False


def _handlers() -> set[object]:
    """Return the code of the handlers that the program has set now."""
    codes = set()
    for number in range(1, _signal.NSIG):
        handler: Any = _signal.getsignal(number)
        if handler is None or isinstance(handler, int):
            continue  # of C, or no handler
        while isinstance(handler, partial):
            handler = handler.func
        if not isinstance(handler, FunctionType | MethodType):
            handler = type(handler).__call__
        codes.add(getattr(handler, "__code__", None))
    return codes


def _is_asynchronous(error: BaseException, innermost: TracebackType) -> bool:
    """Return whether ``PyThreadState_SetAsyncExc`` raised ``error``.

    That makes it by calling its class without arguments, between two instructions.  Other errors
    without arguments are raised by an instruction of the frame, and a few by C functions.
    """
    made_by = type(error).__init__
    if isinstance(made_by, FunctionType):
        code, defaults = made_by.__code__, made_by.__defaults__ or ()
        needed = code.co_argcount - len(defaults) - 1
        keywords = code.co_kwonlyargcount - len(made_by.__kwdefaults__ or ())
        if needed > 0 or keywords > 0:
            return False
    elif error.args:
        return False
    if isinstance(error, MemoryError | StopIteration | StopAsyncIteration):
        return False
    if type(error).__module__ == "_queue":  # Empty
        return False
    codes, last = innermost.tb_frame.f_code.co_code, innermost.tb_lasti
    # Compiled code (Cython, ctypes) makes frames without instructions: it raises in C.
    return 0 <= last < len(codes) and codes[last] not in _RAISING
