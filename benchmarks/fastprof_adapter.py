"""The only file of the benchmarks that uses fastprof's API."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
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
    """Return the reason why fastprof cannot take part, or an empty string."""
    return _missing


class _FunctionProfile:
    """Creates a ``fastprof.Profile`` at every start: each measured slice is a new profile."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._profile: Any = None

    def start(self) -> None:
        self._profile = fastprof.Profile(**self._options)
        self._profile.enable()

    def stop(self) -> None:
        self._profile.disable()


def function_candidate(name: str = "fastprof", **options: Any) -> Candidate:
    """Record functions only, with the cProfile-compatible class and its ``options``."""
    profile = _FunctionProfile(**options)
    return Candidate(name, profile.start, profile.stop, _missing)


def section(name: str) -> Any:
    """Return ``fastprof.profile_section(name)``."""
    return fastprof.profile_section(name)


def profile_section() -> Callable[[str], Any]:
    """Return the function itself, so that a loop calls it like a user's code."""
    factory: Callable[[str], Any] = fastprof.profile_section
    return factory


@contextlib.contextmanager
def sections_on() -> Iterator[Any]:
    """Record sections and steps, but no functions."""
    with fastprof.Profiler(functions=False) as profiler:
        yield profiler


def training_profiler(functions: bool) -> Any:
    """Return a profiler for a training loop, not started."""
    return fastprof.Profiler(functions="auto" if functions else False)


def stepping(outliers: int) -> Any:
    """Return a profiler (a context manager) of functions that keeps ``outliers`` slow steps."""
    return fastprof.Profiler(
        functions=True,
        gpu=False,
        memory=False,
        log_every=0,
        recorder={"outliers": outliers},
    )


def loader(profiler: Any, batches: Iterable[_T]) -> Iterable[_T]:
    wrapped: Iterable[_T] = profiler.loader(batches, name="main")
    return wrapped


def stated_cost(file: str) -> tuple[float | None, float | None, int, int]:
    """Return what the report of a saved run says of its steps.

    That is the part of their time that fastprof took, and its bound; the number of steps, and of
    those that were recorded with functions.
    """
    report = fastprof.load(file)
    cost, steps = report.overhead, report.steps
    recorded = steps.count - steps.skipped - steps.apart
    return cost.share, cost.most_share, steps.count, recorded


def stats(run: Callable[[], object]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return pstats rows of the second run, corrected and as recorded.

    A row is ``{(file, line, name): (cc, nc, tt, ct, callers)}``.
    """
    from fastprof.export.pstats_ import stats_dict

    profile = fastprof.Profile()
    profile.enable()
    try:
        run()
        profile.clear()
        run()
    finally:
        profile.disable()
    snapshot = profile.snapshot()
    return stats_dict(snapshot), stats_dict(snapshot, correct_times=False)


def final_report(
    functions: int, parent: Sequence[int], function: Sequence[int]
) -> dict[str, Callable[[], object]]:
    """Return the parts of the end of `fastprof run`, to be called in this order.

    The recording is artificial: per context its parent and the number of its function.
    """
    from fastprof.cli.summary import print_summary
    from fastprof.export.pstats_ import stats_data, stats_dict
    from fastprof.read import fprof
    from fastprof.results.report import build_report
    from fastprof.snapshot import (
        Calibration,
        EventCost,
        Histogram,
        Key,
        NodeTable,
        SectionStats,
        Snapshot,
        ThreadTree,
    )

    names = [f"work_{i}" for i in range(1, functions + 1)]
    keys = [Key("root", "", 0, "(root)", "(root)")]
    keys += [Key("python", f"/a/package/of/{i % 500}.py", i, n, n) for i, n in enumerate(names)]
    keys += [Key("section", "", 0, "forward", "forward")]
    key = list(function)
    key[1] = len(keys) - 1  # the first function is a section
    n = len(parent)
    calls, self_ns = [i % 50 + 1 for i in range(n)], [i * 7919 % 1_000_000 for i in range(n)]
    nodes = NodeTable(*map(tuple, (parent, key, calls, [0] * n, self_ns)))
    cost = EventCost(20.0, 10.0)
    entries = Histogram(((10**7, 10**8, 50),))
    snapshot = Snapshot(
        meta={"backend": "setprofile"},
        duration_ns=sum(self_ns),
        keys=tuple(keys),
        threads=(ThreadTree(1, "MainThread", False, nodes),),
        sections=(SectionStats(len(keys) - 1, 0, 50, 10**9, 10**9, 10**7, 10**8, 0, 0, entries),),
        calibration=Calibration(*[cost] * (len(fields(Calibration)) - 1)),
    )
    made: dict[str, Any] = {}
    return {
        "report": lambda: made.update(report=build_report(snapshot)),
        ".stats": lambda: stats_data(snapshot),
        ".fprof": lambda: fprof.write(made["report"], io.BytesIO()),
        "report as text": lambda: made["report"].show(io.StringIO()),
        "summary": lambda: print_summary(stats_dict(snapshot), io.StringIO()),
    }
