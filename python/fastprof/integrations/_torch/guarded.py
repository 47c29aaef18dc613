"""Replaces torch's functions for a run: a failing hook is switched off, all are removed exactly."""

from collections.abc import Callable
from typing import Any

from fastprof.guards import is_from_outside, is_near_limit, own_errors
from fastprof.integrations._torch.phases import Phases
from fastprof.session.own_time import clock
from fastprof.session.patching.replaced import Replaced
from fastprof.session.patching.wrapping import After, Args, Before, wrap

Fail = Callable[[str, BaseException], None]


class Guarded:
    """Hooks that never raise, and their removal.

    Args:
        fail: called with a description of the failure and the exception.
    """

    def __init__(self, phases: Phases, fail: Fail) -> None:
        self._phases = phases
        self._fail = fail
        self._own = phases.own_time
        self._undo: list[Callable[[], object]] = []
        self._off: set[str] = set()

    def remove_later(self, action: Callable[[], object]) -> None:
        """Call ``action`` when the hooks are removed."""
        self._undo.append(action)

    def uninstall(self) -> None:
        """Remove the hooks, the last one first."""
        while self._undo:
            try:
                self._undo.pop()()
            except own_errors() as error:  # the others must still be removed
                self._fail("a hook could not be removed", error)

    # -- guarding

    def _part(self, part: str, action: Callable[..., Any], *args: Any) -> Any:
        """Return ``action(*args)``; an exception switches ``part`` off."""
        if part in self._off:
            return None
        try:
            return action(*args)
        except BaseException as error:  # nothing of ours may reach the training
            self._failed(part, error)
        return None

    def _failed(self, part: str, error: BaseException) -> None:
        """Switch ``part`` off, unless ``error`` came from outside: that is raised again."""
        if isinstance(error, Exception) and not is_from_outside(error):
            if is_near_limit(error):
                self._abandon()
                self._fail(f"the automatic sections of {part} have a gap", error)
            else:
                self._switch_off(part, error)
            return
        self._abandon()
        raise error

    def _abandon(self) -> None:
        """Forget the calls that are under way: an exception has ended a hook half-way."""
        self._phases.abandon()

    def _switch_off(self, part: str, error: BaseException) -> None:
        self._off.add(part)
        self._fail(f"the automatic sections of {part} were switched off", error)
        if part == "checkpoint":
            self._phases.run.leave_phase("checkpoint")
        elif part in ("data", "evaluation"):
            self._phases.hand_back()  # no event will report its end

    # Code that runs in every step repeats _part() to save the call.

    def _replace(
        self,
        part: str,
        owner: Any,
        name: str,
        before: Before | None,
        after: After,
        skip: Callable[[Args], bool] | None = None,
    ) -> None:
        """Let ``owner.name`` call ``before`` and ``after``, until it is undone."""
        self._put(owner, name, self._around(part, getattr(owner, name), before, after, skip))

    def _around(
        self,
        part: str,
        original: Callable[..., Any],
        before: Before | None,
        after: After,
        skip: Callable[[Args], bool] | None = None,
    ) -> Callable[..., Any]:
        """Return ``original`` between ``before`` and ``after``."""
        off, failed, own = self._off, self._failed, self._own

        def guarded_before(args: Any, kwargs: Any) -> None:
            if part not in off:
                began, ns, apart_ns = clock(), own.ns, own.apart_ns
                try:
                    before(args, kwargs)  # type: ignore[misc]
                except BaseException as error:
                    failed(part, error)
                own.took(began, ns, apart_ns)

        def guarded_after(args: Any, kwargs: Any, result: Any) -> None:
            if part not in off:
                began, ns, apart_ns = clock(), own.ns, own.apart_ns
                try:
                    after(args, kwargs, result)
                except BaseException as error:
                    failed(part, error)
                own.took(began, ns, apart_ns)

        return wrap(original, before and guarded_before, guarded_after, skip)

    def _put(self, owner: Any, name: str, new: Any) -> None:
        replaced = Replaced()
        replaced.put(owner, name, new)
        self._undo.append(replaced.restore)
