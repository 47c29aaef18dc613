"""Reads the state of Lightning's objects."""

import sys
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from fastprof.integrations._session.patches import Patches
from fastprof.integrations._session.session import Session
from fastprof.session.loaders.timing import TimedIterator

NAMESPACES = ("lightning.pytorch", "pytorch_lightning")


def is_overridden(callbacks: Iterable[Any], key: str, hook: str) -> bool:
    """Return whether a callback with that state key implements ``hook``."""
    bases = [
        getattr(sys.modules[f"{name}.callbacks"], "Callback", None)
        for name in NAMESPACES
        if f"{name}.callbacks" in sys.modules
    ]
    inherited = [getattr(base, hook, None) for base in bases]
    return any(
        callback.state_key == key
        and not type(callback).__module__.startswith("fastprof.")
        and (hook in vars(callback) or getattr(type(callback), hook, None) not in inherited)
        for callback in callbacks
    )


def loader_names(given: Sequence[str], combined: Any) -> list[str]:
    """Return a name for each loader of a ``CombinedLoader``: given, a dict's key, a number."""
    names = list(given)
    count = len(combined.flattened)
    iterables = combined.iterables
    if not names and isinstance(iterables, dict) and len(iterables) == count:
        names = [str(key) for key in iterables]
    return [names[i] if i < len(names) else f"loader{i}" for i in range(count)]


def time_each(patches: Patches, session: Session, mode: Any, names: Sequence[str]) -> None:
    """Time the iterators of validation loaders that are read one after another."""

    def time_current(mode: Any) -> None:
        i = mode._iterator_idx
        if mode.iterators and not isinstance(mode.iterators[0], TimedIterator):
            timed = session.profiler.loader(mode.iterators[0], name=names[i], split="val")
            mode.iterators = [timed]

    time_current(mode)
    if "_load_current_iterator" in vars(mode):
        return
    # Without a reference from ``mode`` to itself: it would keep the iterator, with its worker
    # processes, until the garbage collector runs.
    load_next, of = type(mode)._load_current_iterator, weakref.ref(mode)

    def load() -> None:
        mode = of()
        load_next(mode)
        session.quietly("A loader could not be timed", time_current, mode)

    patches.attribute(mode, "_load_current_iterator", load)


def time_training(session: Session, fetcher: Any, combined: Any, given: Sequence[str]) -> None:
    """Time the training's batches; of a single loader its iterator, whose workers are known then.

    Called before every fetch: an iterator that is already timed costs a few checks.
    """
    inner = getattr(getattr(combined, "_iterator", None), "iterators", None)
    single: list[Any] = inner if isinstance(inner, list) and len(inner) == 1 else []
    if any(isinstance(iterator, TimedIterator) for iterator in (fetcher.iterator, *single)):
        return
    name = "+".join(loader_names(given, combined))
    if single:
        single[0] = session.profiler.loader(single[0], name=name)
    else:
        fetcher.iterator = session.profiler.loader(fetcher.iterator, name=name)
