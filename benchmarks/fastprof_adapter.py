"""The only file of the benchmarks that uses fastprof's API."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from harness import Candidate

try:
    import fastprof
except ImportError as error:
    _missing = f"not importable: {error}"
else:
    _missing = ""

_T = TypeVar("_T")


def missing() -> str:
    """Why fastprof cannot take part; empty when it can."""
    return _missing


class _FunctionProfile:
    """A new ``fastprof.Profile`` at every start, as each measured slice is a new profile."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._profile: Any = None

    def start(self) -> None:
        self._profile = fastprof.Profile(**self._options)
        self._profile.enable()

    def stop(self) -> None:
        self._profile.disable()


def function_candidate(name: str = "fastprof", **options: Any) -> Candidate:
    """Functions only, through the cProfile-compatible class; ``options`` go to it."""
    profile = _FunctionProfile(**options)
    return Candidate(name, profile.start, profile.stop, _missing)


def section(name: str) -> Any:
    """``fastprof.profile_section(name)``."""
    return fastprof.profile_section(name)


def profile_section() -> Callable[[str], Any]:
    """The function itself, so that a loop calls it as a user's code does."""
    factory: Callable[[str], Any] = fastprof.profile_section
    return factory


@contextlib.contextmanager
def sections_on() -> Iterator[Any]:
    """Sections and steps recorded, functions not."""
    with fastprof.Profiler(functions=False) as profiler:
        yield profiler


def training_profiler(functions: bool) -> Any:
    """A profiler for a training loop, not started."""
    return fastprof.Profiler(functions="auto" if functions else False)


def stepping(outliers: int) -> Any:
    """A profiler of functions that keeps so many slow steps; a context manager."""
    return fastprof.Profiler(
        functions=True, gpu=False, memory=False, metrics=False, max_overhead=0, outliers=outliers
    )


def loader(profiler: Any, batches: Iterable[_T]) -> Iterable[_T]:
    wrapped: Iterable[_T] = profiler.loader(batches, name="main")
    return wrapped


def stats(run: Callable[[], object], correct: bool) -> dict[Any, Any]:
    """pstats rows ``{(file, line, name): (cc, nc, tt, ct, callers)}`` of ``run()``."""
    profile = fastprof.Profile(correct=correct)
    profile.enable()
    try:
        run()
    finally:
        profile.disable()
    profile.create_stats()
    rows: dict[Any, Any] = profile.stats
    return rows
