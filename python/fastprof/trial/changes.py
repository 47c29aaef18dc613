"""Applies interventions in the process of a run, and notes the calls that they would change.

Constructors of torch's loaders and optimizers get other arguments than the program gives.  A call
that fails with them fails as it would in the program: the trial reports that.
"""

import functools
import inspect
import logging
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from fastprof.guards import own_errors
from fastprof.report.origin import is_own_file, is_users_file
from fastprof.session.patching.replaced import Replaced
from fastprof.trial.model import Call

LOADER = "DataLoader"
#: Classes of torch.optim that have fused=True.
FUSABLE = ("Adam", "AdamW", "SGD", "Adagrad")
OPTIMIZERS = (*FUSABLE, "Adamax", "NAdam", "RAdam", "RMSprop", "Adadelta", "ASGD", "Rprop")
THREADS = "set_num_threads"
ZERO_GRAD = "zero_grad"

#: Changes the arguments of a call by name; returns whether it changed any.
Edit = Callable[[dict[str, Any]], bool]

#: Calls that are kept; a program that makes a loader per epoch makes the same one again.
_MOST = 200


class Changes:
    """The interventions of one run; ``applied`` counts by id what each has changed."""

    def __init__(self, *, observe: bool) -> None:
        self.calls: list[Call] = []
        self.applied: dict[str, int] = {}
        self._observe = observe
        self._replaced = Replaced()
        self._edits: dict[str, list[tuple[str, Edit]]] = {}
        self._with_torch: list[tuple[str, Callable[[Any], object]]] = []
        self._first_step: list[tuple[str, Callable[[], object]]] = []
        self._under_way: set[int] = set()

    # -- for interventions

    def edit(self, name: str, kinds: tuple[str, ...], change: Edit) -> None:
        """Let ``change`` edit the arguments of calls of ``kinds``, for this intervention."""
        for kind in kinds:
            self._edits.setdefault(kind, []).append((name, change))

    def with_torch(self, name: str, change: Callable[[Any], object]) -> None:
        """Call ``change`` with torch when that is imported; False: it has had no effect yet."""
        self._with_torch.append((name, change))

    def at_first_step(self, name: str, change: Callable[[], object]) -> None:
        """Call ``change`` at the end of the first step."""
        self._first_step.append((name, change))

    def count(self, name: str) -> None:
        """Note that the intervention ``name`` has changed something."""
        self.applied[name] = self.applied.get(name, 0) + 1

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Set ``owner.name`` for the rest of the process."""
        self._replaced.put(owner, name, new)

    # -- for the run

    def install(self, torch: Any) -> None:
        """Install the hooks; torch is imported."""
        loaders = sys.modules.get("torch.utils.data.dataloader")
        if loaders is not None:
            self._around(vars(loaders)[LOADER], "__init__", LOADER)
        for kind in OPTIMIZERS:
            made = getattr(torch.optim, kind, None)
            if made is not None:
                self._around(made, "__init__", kind)
        self._around(torch, THREADS, THREADS)
        if self._observe or ZERO_GRAD in self._edits:
            self._around(torch.optim.Optimizer, ZERO_GRAD, ZERO_GRAD)
            self._around(torch.nn.Module, ZERO_GRAD, ZERO_GRAD)
        for name, change in self._with_torch:
            if change(torch) is not False:
                self.count(name)

    def watch_logging(self) -> None:
        """Note that the program logs to a stream or file, in a run that observes."""
        emit = logging.StreamHandler.emit

        @functools.wraps(emit)
        def noted(handler: Any, record: Any) -> None:
            self._note("log", {})
            emit(handler, record)

        self.replace(logging.StreamHandler, "emit", noted)

    def first_step_ended(self) -> None:
        """Apply what waits for the first step."""
        for name, change in self._first_step:
            change()
            self.count(name)

    def _around(self, owner: Any, name: str, kind: str) -> None:
        original = getattr(owner, name)
        try:
            signature = inspect.signature(original)
        except (TypeError, ValueError):  # a function of C: its arguments have no names
            signature = None

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            # A class calls the constructor of its base: that is the same call.
            mark = id(args[0]) if args else 0
            if mark in self._under_way:
                return original(*args, **kwargs)
            self._under_way.add(mark)
            try:
                try:
                    args, kwargs = self._changed(kind, signature, args, kwargs)
                except own_errors():  # invalid arguments: refusing them is the original's task
                    pass
                return original(*args, **kwargs)
            finally:
                self._under_way.discard(mark)

        self._replaced.put(owner, name, call)

    def _changed(
        self, kind: str, signature: inspect.Signature | None, args: Any, kwargs: Any
    ) -> tuple[Any, Any]:
        if signature is None:
            bound, given = None, {f"arg{i}": value for i, value in enumerate(args)} | kwargs
        else:
            bound = signature.bind(*args, **kwargs)
            given = bound.arguments
        self._note(kind, given)
        changed = False
        for name, change in self._edits.get(kind, ()):
            if change(given):
                self.count(name)
                changed = True
        if not changed:
            return args, kwargs
        if bound is None:
            return tuple(given.values()), {}
        # Python's order of arguments: a new one may stand before others.
        names = list(bound.signature.parameters)
        ordered = sorted(given.items(), key=lambda item: names.index(item[0]))
        given.clear()
        given.update(ordered)
        return bound.args, bound.kwargs

    def _note(self, kind: str, given: dict[str, Any]) -> None:
        file, line = _place(given.get("self"))
        plain = {
            name: value
            for name, value in given.items()
            if value is None or isinstance(value, bool | int | float | str)
        }
        call = Call(kind, file, line, plain)
        if len(self.calls) < _MOST and call not in self.calls:
            self.calls.append(call)


def _place(made: object) -> tuple[str, int]:
    """Return the place of the program that makes the call; ("", 0): a library makes it.

    ``made`` is the object that a constructor makes.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_own_file(frame.f_code.co_filename):
        frame = frame.f_back
    # A class of a library that is derived from torch's, made by the program.
    while frame is not None and not is_users_file(frame.f_code.co_filename):
        code = frame.f_code
        if code.co_name != "__init__" or frame.f_locals.get(code.co_varnames[0]) is not made:
            break
        frame = frame.f_back
    if frame is None or not is_users_file(frame.f_code.co_filename):
        return "", 0
    return frame.f_code.co_filename, frame.f_lineno
