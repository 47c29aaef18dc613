"""What ``children.py truth`` does: shares of components, with and without profilers.

What a component truly takes is measured without a profiler, in turn with the profiled
runs of the same process.
"""

from __future__ import annotations

import cProfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastprof_adapter
import harness
from truth_programs import PROGRAMS, Component

Stats = Mapping[Any, Any]
Parts = Sequence[tuple[Component, int]]


def _program(parts: Parts) -> None:
    for component, repeat in parts:
        component(repeat)


def _unprofiled(parts: Parts) -> dict[str, float]:
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


def _component_seconds(stats: Stats, parts: Parts) -> dict[str, float]:
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


def _measure(parts: Parts, rounds: int) -> tuple[dict[str, float], dict[str, _Best]]:
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


def measure(rounds: int, divisor: int) -> dict[str, Any]:
    """Every program of ``PROGRAMS``, its components shorter by ``divisor``."""
    harness.settle()
    data: dict[str, Any] = {}
    for title, sized in PROGRAMS.items():
        parts = [(c, max(1, n // divisor)) for c, n in sized]
        truth, best = _measure(parts, rounds)
        true_shares = _shares(truth)
        wall = sum(truth.values())
        data[title] = {"wall_s": wall, "true_shares": true_shares, "profilers": {}}
        for name, b in best.items():
            shares = _shares(b.seconds)
            error = max(abs(shares.get(c, 0.0) - s) for c, s in true_shares.items())
            data[title]["profilers"][name] = {
                "shares": shares,
                "max_error_points": error,
                "self_sum_over_wall": b.self_sum / wall,
            }
    return data
