"""Implements ``children.py truth``: shares of components, with and without profilers.

Runs without a profiler, in turn with the profiled runs of the same process, measure a component's
true time.
"""

from __future__ import annotations

import cProfile
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass
class _Found:
    """Seconds of each component in the round in which it was recorded as fastest.

    A corrected time must not choose its round: a calibration that a neighbour disturbed subtracts
    too much, and would win.
    """

    recorded: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, recorded: Mapping[str, float], seconds: Mapping[str, float]) -> None:
        for name, value in recorded.items():
            if value < self.recorded.get(name, math.inf):
                self.recorded[name] = value
                self.seconds[name] = seconds[name]


def _profiled(run: Callable[[], object]) -> Iterator[tuple[str, Stats, Stats]]:
    """Run under each profiler; yield its name, its times, and its times as recorded."""
    if not fastprof_adapter.missing():
        corrected, recorded = fastprof_adapter.stats(run)
        yield "fastprof", corrected, recorded
        yield "fastprof, raw", recorded, recorded
    stats = _cprofile(run)
    yield "cProfile", stats, stats


def _round(parts: Parts, truth: _Found, profiled: dict[str, _Found]) -> None:
    # Run twice, as with profilers: in the first run the interpreter adapts to the change.
    _unprofiled(parts)
    seconds = _unprofiled(parts)
    truth.add(seconds, seconds)
    for name, stats, recorded in _profiled(lambda: _program(parts)):
        found = profiled.setdefault(name, _Found())
        found.add(_component_seconds(recorded, parts), _component_seconds(stats, parts))


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
    truths = {title: _Found() for title in programs}
    found: dict[str, dict[str, _Found]] = {title: {} for title in programs}
    for number in range(rounds):
        for title, parts in programs.items():
            _at_depth(number % _DEPTHS, partial(_round, parts, truths[title], found[title]))
    data: dict[str, Any] = {}
    for title, truth in truths.items():
        true_shares = _shares(truth.seconds)
        wall = sum(truth.seconds.values())
        data[title] = {"wall_s": wall, "true_shares": true_shares, "profilers": {}}
        for name, of_profiler in found[title].items():
            seconds = of_profiler.seconds
            shares = _shares(seconds)
            error = max(abs(shares.get(c, 0.0) - s) for c, s in true_shares.items())
            data[title]["profilers"][name] = {
                "shares": shares,
                "max_error_points": error,
                "sum_over_wall": sum(seconds.values()) / wall,
            }
    return data
