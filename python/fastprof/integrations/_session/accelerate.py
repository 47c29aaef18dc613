"""Hooks on the loaders and models that Accelerate prepares; also used for transformers."""

import threading
from collections.abc import Callable
from typing import Any

import accelerate.data_loader

from fastprof.capture.sections import profile_section
from fastprof.integrations._session.patches import Patches
from fastprof.integrations._session.session import Session
from fastprof.integrations._torch.modules import Hook, ResultHook, around_scripting

_DATA = profile_section("data")


def is_training(module: Any) -> bool:
    """Return whether a backward probably follows a forward of ``module``."""
    import torch

    return bool(module.training and torch.is_grad_enabled())


def observe_model(
    patches: Patches,
    session: Session,
    model: Any,
    before: Callable[[Any], None],
    after: Callable[[Any, Any], None],
) -> None:
    """Call ``before(model)`` and ``after(model, output)`` around each call of ``model``."""

    def pre(module: Any) -> None:
        session.quietly("A forward could not be started", before, module)

    def post(module: Any, output: Any) -> None:
        session.quietly("A forward could not be ended", after, module, output)

    # The program may copy or save the model meanwhile; copies do not get these hooks.
    for handle in (
        model.register_forward_pre_hook(Hook(pre)),
        model.register_forward_hook(ResultHook(post), always_call=True),
    ):
        patches.on_undo(handle.remove)
    around_scripting(patches.around)


def time_prepared_loaders(
    patches: Patches,
    session: Session,
    kind_of: Callable[[Any], tuple[str | None, str]],
    observer: Any,
) -> None:
    """Time the loaders that Accelerate makes: fetching as ``data``, moving as ``h2d``.

    Their ``__iter__`` is a generator that reads one batch ahead and moves the batch to the
    device, so its ``next()`` contains both.  This function replaces ``__iter__`` of the
    class, because Python ignores one set on an object.

    Args:
        kind_of: returns a loader's name (None: by number) and split.
        observer: its ``before_fetch(split)`` and ``after_pass(split)`` are called.
    """
    module = accelerate.data_loader

    def timing(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def timed(loader: Any) -> Any:
            name, split = kind_of(loader)
            # The number of a loader must stay the same in every epoch.
            name = name or session.number_of(loader, split)
            return _Fetching(session, original(loader), name, split, observer)

        def __iter__(loader: Any) -> Any:  # noqa: N807
            made = session.quietly("A loader could not be timed", timed, loader)
            return original(loader) if made is None else made

        return __iter__

    for name in ("DataLoaderShard", "DataLoaderDispatcher"):
        cls = getattr(module, name, None)
        if cls is not None:
            patches.attribute(cls, "__iter__", timing(vars(cls)["__iter__"]))
    patches.attribute(module, "send_to_device", session.inside("h2d", module.send_to_device))


class _Fetching:
    """One pass over a prepared loader."""

    def __init__(
        self, session: Session, iterator: Any, name: str, split: str, observer: Any
    ) -> None:
        self._session = session
        self._iterator = iterator
        self._timed: Any = None
        self._name = name
        self._split = split
        self._observer = observer
        self._evaluating = False
        self._thread = threading.get_ident()

    def __iter__(self) -> "_Fetching":
        return self

    def __next__(self) -> Any:
        session, split = self._session, self._split
        session.quietly("A step could not be ended", self._observer.before_fetch, split)
        if split == "val" and not self._evaluating:
            self._evaluating = True
            session.quietly("An evaluation could not be started", session.enter_container, "eval")
        session.open(self)
        try:
            return next(self._source())
        except StopIteration:
            session.close(self)
            self._leave()
            session.quietly("A pass could not be ended", self._observer.after_pass, split)
            raise
        finally:
            session.close(self)

    def _source(self) -> Any:
        if _DATA.phase_is_open():  # by the program's Profiler.loader(), which counts the batch
            return self._iterator
        if self._timed is None:
            timed = self._session.quietly("A loader could not be timed", self._time)
            self._timed = self._iterator if timed is None else timed
        return self._timed

    def _time(self) -> Any:
        return self._session.profiler.loader(self._iterator, name=self._name, split=self._split)

    def _leave(self) -> None:
        if self._evaluating:
            self._evaluating = False
            self._session.quietly("An evaluation could not be ended", self._session.leave_container)

    def __del__(self) -> None:
        # A loop that ends by ``break`` drops its iterator.
        if self._evaluating and threading.get_ident() == self._thread:
            self._leave()
