"""The part of a run that notes the ends of steps, and ends the program after the last one.

The end is an exception in the training thread, set by ``PyThreadState_SetAsyncExc``: so the
program's own clean-up runs, workers end and files are flushed.  It is a SystemExit, which neither
``except Exception`` nor trainers take for an error.  Guards of fastprof let it pass (decision 33).
A program that catches it gets it again at its next steps; the parent ends what still runs later.
"""

import sys
import threading
from collections.abc import Callable
from time import perf_counter_ns

from fastprof.session.part import Part

#: The program may catch the exception this often.
_ATTEMPTS = 5


class Enough(SystemExit):
    """Raised in the training thread after the last step that is wanted."""


def raise_in(thread: int) -> None:
    """Let the thread with this identifier raise :class:`Enough` at its next instruction."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Enough))


class StepEnds(Part):
    """The ends of the steps of one run.

    Args:
        steps, seconds, least: see :class:`~fastprof.trial.model.Plan`.
        first: called at the end of the first step.
        done: called once, at the end of the last one.
    """

    kind = "trial"

    def __init__(
        self,
        steps: int,
        seconds: float,
        least: int,
        first: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        self.ends_ns: list[int] = []
        self._steps = steps
        self._ns = int(seconds * 1e9)
        self._least = least
        self._first = first
        self._done = done
        self._attempts = 0
        self._forgotten = False

    def next_step(self, count: int) -> int:
        return sys.maxsize if self._forgotten else count + 1

    def at_step(self, count: int) -> None:
        now = perf_counter_ns()
        if self._attempts:  # the program has caught the exception
            self._end()
            return
        self.ends_ns.append(now)
        if len(self.ends_ns) == 1:
            self._first()
        if self._is_last(now):
            self._done()
            self._end()

    def forget(self) -> None:
        self._forgotten = True

    def _is_last(self, now: int) -> bool:
        count = len(self.ends_ns)
        late = bool(self._ns) and count >= self._least and now - self.ends_ns[0] >= self._ns
        return count >= self._steps or late

    def _end(self) -> None:
        self._attempts += 1
        if self._attempts <= _ATTEMPTS:
            raise_in(threading.get_ident())
