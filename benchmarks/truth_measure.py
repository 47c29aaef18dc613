"""Implements ``children.py truth``: shares of components, with and without profilers.

Runs without a profiler, in turn with the profiled runs of the same process, measure a component's
true time.
"""

from __future__ import annotations

import cProfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import fastprof_adapter
import harness
from truth_programs import PROGRAMS, Component

Stats = Mapping[Any, Any]
Parts = Sequence[tuple[Component, int]]

#: Places in memory at which the programs run.
_DEPTHS = 4


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
    profile.clear()
    run()
    profile.disable()
    profile.create_stats()
    stats: Stats = profile.stats
    return stats


def _component_seconds(stats: Stats, parts: Parts) -> dict[str, float]:
    """Return the cumulative time by component; components are disjoint subtrees."""
    codes = {
        (c.__code__.co_filename, c.__code__.co_firstlineno, c.__name__): c.__name__
        for c, _ in parts
    }
    return {codes[label]: row[3] for label, row in stats.items() if label in codes}


def _shares(seconds: Mapping[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    return {name: 100.0 * value / total for name, value in seconds.items()}


def _keep_least(least: dict[str, float], seconds: Mapping[str, float]) -> None:
    """Keep the fastest of all rounds per component."""
    for name, value in seconds.items():
        least[name] = min(value, least.get(name, value))


def _profilers() -> dict[str, Callable[[Callable[[], object]], Stats]]:
    found: dict[str, Callable[[Callable[[], object]], Stats]] = {}
    if not fastprof_adapter.missing():
        found["fastprof"] = lambda run: fastprof_adapter.stats(run, correct=True)
        found["fastprof, raw"] = lambda run: fastprof_adapter.stats(run, correct=False)
    found["cProfile"] = _cprofile
    return found


def _round(parts: Parts, truth: dict[str, float], profiled: Mapping[str, dict[str, float]]) -> None:
    # Run twice, as with profilers: in the first run the interpreter adapts to the change.
    _unprofiled(parts)
    _keep_least(truth, _unprofiled(parts))
    for name, profile in _profilers().items():
        stats = profile(lambda: _program(parts))
        _keep_least(profiled[name], _component_seconds(stats, parts))


def _at_depth(frames: int, run: Callable[[], None]) -> None:
    """Call ``run`` below more frames, so that the frames of its calls lie elsewhere in memory.

    At some places a loop without calls takes up to a quarter longer, with a profiler (any) or
    without one, in every round of a process.  The least of rounds at several places does not.
    """
    if frames:
        _at_depth(frames - 1, run)
    else:
        run()


def measure(rounds: int, divisor: int) -> dict[str, Any]:
    """Measure every program of ``PROGRAMS``, its components shorter by ``divisor``.

    The programs take turns in each round.  On a virtual machine a neighbour on the same core
    sometimes slows hooked calls by half for 0.2 s or more, but hardly affects a plain loop.
    """
    harness.settle()
    programs = {
        title: [(c, max(1, n // divisor)) for c, n in sized] for title, sized in PROGRAMS.items()
    }
    truths: dict[str, dict[str, float]] = {title: {} for title in programs}
    found: dict[str, dict[str, dict[str, float]]] = {
        title: {name: {} for name in _profilers()} for title in programs
    }
    for number in range(rounds):
        for title, parts in programs.items():
            _at_depth(number % _DEPTHS, partial(_round, parts, truths[title], found[title]))
    data: dict[str, Any] = {}
    for title, truth in truths.items():
        true_shares = _shares(truth)
        wall = sum(truth.values())
        data[title] = {"wall_s": wall, "true_shares": true_shares, "profilers": {}}
        for name, seconds in found[title].items():
            shares = _shares(seconds)
            error = max(abs(shares.get(c, 0.0) - s) for c, s in true_shares.items())
            data[title]["profilers"][name] = {
                "shares": shares,
                "max_error_points": error,
                "sum_over_wall": sum(seconds.values()) / wall,
            }
    return data
