"""Standing in for methods of a framework's objects, and what ``attach()`` returns."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

    from fastprof.integrations._session.session import Session
    from fastprof.report import Report
    from fastprof.session.profiler import Profiler


class Patches:
    """Methods that were replaced on objects, and how to put them back exactly.

    Where other code has wrapped ours in the meantime, ours stays below theirs; it
    passes calls through, since its session is over.  Nothing here keeps an object alive: a
    program may free a model and its optimizer while they are observed.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def method(
        self, target: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        """Let ``target.name`` be ``make(what it was)``; nothing if there is no such method."""
        original = getattr(target, name, None)
        if not callable(original):
            return
        call = make(original)
        function = getattr(original, "__func__", None)
        if function is None:
            # An object's own function, which torch's schedulers make of a method.
            self.attribute(target, name, functools.wraps(original)(call))
            return

        # Wrapped is the function, so that inspect finds the method's own signature.
        @functools.wraps(function)
        def stand_in(_self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        # A bound method, as what it replaces: torch's schedulers ask for its __func__.
        self.attribute(target, name, MethodType(stand_in, target))

    def attribute(self, target: Any, name: str, value: Any) -> None:
        """Let ``target.name`` be ``value``."""
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
        """Call ``action`` when everything is put back."""
        self._undo.append(action)

    def undo(self) -> None:
        """Put everything back, the last one first."""
        while self._undo:
            self._undo.pop()()


class HasRun:
    """The latest run of an integration."""

    _session: Session | None = None
    #: What a run starts with, for the error where there is none.
    _start = "the training"

    @property
    def profiler(self) -> Profiler:
        """The :class:`~fastprof.Profiler` of the latest run.

        Raises:
            RuntimeError: training has not begun.
        """
        if self._session is None:
            raise RuntimeError(f"there is no run yet: it starts with {self._start}")
        return self._session.profiler

    def report(self) -> Report:
        """Return what was recorded, as ``profiler.report()`` does."""
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
        """End the run and put back everything that was replaced."""
        try:
            if self._session is not None:
                self._session.stop()
        finally:
            self._patches.undo()
