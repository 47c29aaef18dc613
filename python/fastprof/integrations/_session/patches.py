"""Replaces methods of a framework's objects; base classes for results of ``attach()``."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

from fastprof.integrations._session.session import NO_SESSION, Session
from fastprof.results.report import Report
from fastprof.session.patching.wrapping import After, Before, wrap
from fastprof.session.profiler import Profiler

if TYPE_CHECKING:
    from typing_extensions import Self


class Patches:
    """Replaces methods on objects, and restores them exactly.

    If other code has wrapped our method in the meantime, ours stays below theirs; it passes
    calls through, because its session is over.  Patches keep no object alive: a
    program may free a model and its optimizer while they are observed.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def method(
        self, target: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        """Set ``target.name`` to ``make(original)``; do nothing if it has no such method."""
        original = getattr(target, name, None)
        if not callable(original):
            return
        call = make(original)
        function = getattr(original, "__func__", None)
        if function is None:
            # A function set on the object, as torch's schedulers do with methods.
            self.attribute(target, name, functools.wraps(original)(call))
            return

        # Wrap the function, so that inspect finds the method's own signature.
        @functools.wraps(function)
        def stand_in(_self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        # A bound method, like the original: torch's schedulers read its __func__.
        self.attribute(target, name, MethodType(stand_in, target))

    def around(self, target: Any, name: str, before: Before, after: After) -> None:
        """Let ``target.name`` call ``before`` and ``after``."""
        self.attribute(target, name, wrap(getattr(target, name), before, after))

    def attribute(self, target: Any, name: str, value: Any) -> None:
        """Set ``target.name`` to ``value``."""
        own = vars(target)
        was_own, old = name in own, own.get(name)
        setattr(target, name, value)
        target_of, value_of = weakref.ref(target), weakref.ref(value)

        def undo() -> None:
            there, ours = target_of(), value_of()
            if there is None or ours is None or vars(there).get(name) is not ours:
                return
            if was_own:
                setattr(there, name, old)
            else:
                delattr(there, name)

        self._undo.append(undo)

    def on_undo(self, action: Callable[[], None]) -> None:
        """Call ``action`` when everything is restored."""
        self._undo.append(action)

    def undo(self) -> None:
        """Restore everything, the last replacement first."""
        while self._undo:
            self._undo.pop()()


class HasRun:
    """The latest run of an integration."""

    _session: Session = NO_SESSION
    #: What starts a run, for the error message before the first run.
    _start = "the training"

    @property
    def profiler(self) -> Profiler:
        """The :class:`~fastprof.Profiler` of the latest run.

        Raises:
            RuntimeError: training has not begun.
        """
        if self._session is NO_SESSION:
            raise RuntimeError(f"no run yet: it starts with {self._start}")
        return self._session.profiler

    def report(self) -> Report:
        """Return the report of the run, like ``profiler.report()``."""
        return self.profiler.report()


class Attachment(HasRun):
    """The result of ``attach()``: the run, and the way to end it early.

    A context manager that ends it.
    """

    def __init__(self) -> None:
        self._patches = Patches()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.detach()

    def detach(self) -> None:
        """End the run and restore everything that was replaced."""
        try:
            self._session.stop()
        finally:
            self._patches.undo()
