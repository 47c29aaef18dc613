"""Does the profile tell the truth?  Shares of components whose unprofiled share is known.

A program calls its components one after the other, once each.  What a component truly
takes is measured without a profiler, in turn with the profiled runs.  A profiler is as
true as the share it gives each component, and as what all its self times sum up to.
"""

from __future__ import annotations

import cProfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastprof_adapter
import harness
import workloads
from harness import CaseResult, Options, Table

TARGET_POINTS = 3.0
TARGET_SUM = 0.05

Component = Callable[[int], object]
Stats = Mapping[Any, Any]


def spin(n: int) -> int:
    """A loop without a call."""
    total = 0
    for i in range(n):
        total = (total * 3 + i) & 0xFFFF
    return total


def _one(x: int) -> int:
    return x


def small_calls(n: int) -> int:
    """Nothing but calls of a function that does nothing."""
    total = 0
    for i in range(n):
        total += _one(i)
    return total


def c_calls(n: int) -> int:
    """Nothing but calls of builtins and of methods written in C."""
    items = [1, 2, 3]
    total = 0
    for _ in range(n):
        total += len(items) + items.count(2)
    return total


def big_c_call(n: int) -> int:
    """Few calls, long time in each."""
    items = list(range(2_000))
    total = 0
    for _ in range(n):
        total += sum(items)
    return total


def _squares(n: int) -> Any:
    for i in range(n):
        yield i * i


def generator(n: int) -> int:
    """A generator that is resumed at every turn."""
    total = 0
    for value in _squares(n):
        total += value & 7
    return total


_MODEL = workloads.module_tree(4, 2)


def modules(n: int) -> float:
    """Module-like objects that call each other three deep."""
    x = 1.0
    for _ in range(n):
        x = _MODEL(1.0)
    return x


#: Name of the program -> components and how often each repeats: one or two milliseconds
#: each, so that some rounds pass between two interruptions.
PROGRAMS: dict[str, tuple[tuple[Component, int], ...]] = {
    "loop + Python calls": ((spin, 40_000), (small_calls, 60_000)),
    "loop + C calls": ((spin, 40_000), (c_calls, 30_000)),
    "long C calls + modules": ((big_c_call, 140), (modules, 600)),
    "everything": (
        (spin, 40_000),
        (small_calls, 40_000),
        (c_calls, 24_000),
        (big_c_call, 100),
        (generator, 40_000),
        (modules, 400),
    ),
}


def _program(parts: Sequence[tuple[Component, int]]) -> None:
    for component, repeat in parts:
        component(repeat)


def _unprofiled(parts: Sequence[tuple[Component, int]]) -> dict[str, float]:
    seconds = {}
    for component, repeat in parts:
        begin = time.perf_counter()
        component(repeat)
        seconds[component.__name__] = time.perf_counter() - begin
    return seconds


def _cprofile(run: Callable[[], object]) -> Stats:
    profile = cProfile.Profile()
    profile.enable()
    run()
    profile.disable()
    profile.create_stats()
    stats: Stats = profile.stats
    return stats


def _component_seconds(stats: Stats, parts: Sequence[tuple[Component, int]]) -> dict[str, float]:
    """Cumulative time by component: they are disjoint subtrees of the program."""
    codes = {
        (c.__code__.co_filename, c.__code__.co_firstlineno, c.__name__): c.__name__
        for c, _ in parts
    }
    return {codes[label]: row[3] for label, row in stats.items() if label in codes}


def _shares(seconds: Mapping[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    return {name: 100.0 * value / total for name, value in seconds.items()}


class _Best:
    """Per component the fastest of all rounds; so for the sum of all self times."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.self_sum = float("inf")

    def add(self, seconds: Mapping[str, float], self_sum: float) -> None:
        for name, value in seconds.items():
            self.seconds[name] = min(value, self.seconds.get(name, value))
        self.self_sum = min(self.self_sum, self_sum)


def _profilers() -> dict[str, Callable[[Callable[[], object]], Stats]]:
    found: dict[str, Callable[[Callable[[], object]], Stats]] = {}
    if not fastprof_adapter.missing():
        found["fastprof"] = lambda run: fastprof_adapter.stats(run, correct=True)
        found["fastprof, raw"] = lambda run: fastprof_adapter.stats(run, correct=False)
    found["cProfile"] = _cprofile
    return found


def _measure(
    parts: Sequence[tuple[Component, int]], rounds: int
) -> tuple[dict[str, float], dict[str, _Best]]:
    profilers = _profilers()
    truth = _Best()
    best = {name: _Best() for name in profilers}
    _unprofiled(parts)
    for _ in range(rounds):
        # Twice: the first run after a profiler specialises the bytecode again.
        _unprofiled(parts)
        seconds = _unprofiled(parts)
        truth.add(seconds, sum(seconds.values()))
        for name, profile in profilers.items():
            stats = profile(lambda: _program(parts))
            best[name].add(_component_seconds(stats, parts), sum(r[2] for r in stats.values()))
    return truth.seconds, best


def run(options: Options) -> CaseResult:
    """Compare the shares that profilers give with those measured without one."""
    rounds = options.round_count(61, 2)
    harness.settle()
    rows = []
    details = []
    data: dict[str, Any] = {}
    for title, sized in PROGRAMS.items():
        parts = [(c, max(1, n // options.pick(1, 10))) for c, n in sized]
        truth, best = _measure(parts, rounds)
        true_shares = _shares(truth)
        wall = sum(truth.values())
        data[title] = {"wall_s": wall, "true_shares": true_shares, "profilers": {}}
        shares = {name: _shares(b.seconds) for name, b in best.items()}
        for name, b in best.items():
            error = max(abs(shares[name].get(c, 0.0) - s) for c, s in true_shares.items())
            rows.append((f"{title}: {name}", error, b.self_sum / wall))
            data[title]["profilers"][name] = {
                "shares": shares[name],
                "max_error_points": error,
                "self_sum_over_wall": b.self_sum / wall,
            }
        details += [
            (f"{title}: {component}", share, *(shares[name].get(component) for name in best))
            for component, share in true_shares.items()
        ]
    profilers = list(_profilers())
    remarks = [f"Targets on 3.12+: error <= {TARGET_POINTS} points, sum within {TARGET_SUM:.0%}."]
    remarks += ["3.11 slows every bytecode while a hook is set: no correction reaches that."]
    if fastprof_adapter.missing():
        remarks.append(f"fastprof: {fastprof_adapter.missing()}")
    tables = (
        Table(
            "truth: largest error of a component's share, and sum of self times over wall",
            ("program: profiler", "error, points", "sum / wall"),
            tuple(rows),
            tuple(remarks),
        ),
        Table(
            "truth: share of each component in %",
            ("program: component", "true", *profilers),
            tuple(details),
        ),
    )
    return CaseResult("truth", tables, {"rounds": rounds, "programs": data})
