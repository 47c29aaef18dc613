"""Reads the state of Lightning's objects."""

import sys
from collections.abc import Callable, Iterable, Sequence
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

    def time_current() -> None:
        i = mode._iterator_idx
        if mode.iterators and not isinstance(mode.iterators[0], TimedIterator):
            timed = session.profiler.loader(mode.iterators[0], name=names[i], split="val")
            mode.iterators = [timed]

    def then_time(original: Callable[..., Any]) -> Callable[..., Any]:
        def load() -> None:
            original()
            session.quietly("A loader could not be timed", time_current)

        return load

    time_current()
    if "_load_current_iterator" not in vars(mode):
        patches.method(mode, "_load_current_iterator", then_time)
