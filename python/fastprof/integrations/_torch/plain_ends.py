"""Ends plain steps without a call of a function in Python: that is most of what they cost.

While each step of the optimizer is like its last one, two functions in C take the place of the
hooks on optimizers.  They call these for anything else, after :meth:`PlainEnds.end`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from fastprof.capture.plain_steps import PlainFetch, PlainSteps
from fastprof.integrations._torch.owner import claims
from fastprof.integrations._torch.phase_state import DATA

if TYPE_CHECKING:
    from fastprof.integrations._torch.phases import Phases


class PlainEnds:
    """The two functions of one run.

    Args:
        handles: those of the hooks before and after an optimizer's step, as torch returned them.
        hooks: these two.
        failed: called with the name of a part and the exception.
    """

    def __init__(
        self,
        phases: Phases,
        handles: tuple[Any, Any],
        hooks: tuple[Callable[..., Any], Callable[..., Any]],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self._phases = phases
        self._failed = failed
        self._hooks = hooks
        self._places = [(handle.hooks_dict_ref(), handle.id) for handle in handles]
        run = phases.run
        self._core = PlainSteps(
            *hooks, self.end, self._due, run.loading, claims, phases.leaders, run.recorder
        )
        self._functions = self._core.before, self._core.after
        # False: an optimizer makes its steps inside of others.
        self._serves = True
        self._optimizer: Callable[[], Any] = lambda: None

    def fetch(
        self, slow: Callable[[Any], Any], over: Callable[[], object], original: Callable[[Any], Any]
    ) -> PlainFetch:
        """Return what fetches the batches of plain steps; it calls ``slow`` for any other.

        Args:
            slow: returns the next batch of an iterator.
            over: called when an iterator has ended.
            original: asks an iterator for its next batch.
        """
        return PlainFetch(self._core, slow, over, original, self._phases, DATA)

    @property
    def stepping(self) -> bool:
        """Whether a step of the optimizer is under way."""
        return self._core.stepping

    def begin(self, optimizer: Any, tag: int) -> None:
        """End the next steps of ``optimizer`` on batches of the loader ``tag``, in this thread."""
        if self._serves and not self._core.on:
            # At its address another one may be made.
            self._optimizer = weakref.ref(optimizer, lambda _: self.end())
            self._core.begin(optimizer, tag)
            self._put(self._functions)

    def end(self) -> None:
        """Let the hooks do it again."""
        was_on, stepping = self._core.end()
        if not was_on:
            return
        self._put(self._hooks)
        seen = self._count()
        optimizer = self._optimizer()
        # A step that raised has not ended, either.
        under_way = steps_under_way(id(optimizer)) if stepping and optimizer is not None else 0
        if under_way:
            self._serves = under_way == 1
        else:
            stepping = False
        self._phases.plain_ended(optimizer, seen, stepping=stepping)

    def _put(self, functions: tuple[Callable[..., Any], Callable[..., Any]]) -> None:
        for (hooks, key), function in zip(self._places, functions, strict=True):
            if hooks is not None and key in hooks:
                hooks[key] = function

    def _count(self) -> int:
        """Note what the ends took; return the number of steps after the last one."""
        steps, ns, seen = self._core.take()
        own = self._phases.own_time
        own.steps += steps
        own.ns += ns
        own.whole_ns += ns  # all of it: torch's code around the calls is there without fastprof
        return seen

    def _due(self, count: int) -> None:
        self._count()
        try:
            self._phases.run.after_step(count)
        except BaseException as error:
            self.end()
            self._failed("optimizer", error)


def steps_under_way(number: int) -> int:
    """Return how often torch's ``step`` wrapper runs for an optimizer in this thread, at most 2.

    ``number``: its address.  Twice: a subclass calls its base's.
    """
    wrappers = 0
    module = vars(sys.modules["torch.optim.optimizer"])
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and wrappers < 2:
        if frame.f_globals is module and frame.f_code.co_varnames[:1] == ("args",):
            args = frame.f_locals["args"]
            wrappers += isinstance(args, tuple) and len(args) > 0 and id(args[0]) == number
        frame = frame.f_back
    return wrappers
