"""Measures the cost of keeping the slowest steps, by number of calling contexts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import fastprof_adapter
from harness import CaseResult, Options, Table

CONTEXTS = (1_000, 20_000)
STEP_NS = 1_000_000
TARGET_SHARE = 0.001


def _program(contexts: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return a function that creates ``contexts`` contexts, and one that calls a few of them."""
    side = round(contexts**0.5)
    source = "".join(f"def f{i}(): pass\ndef g{i}(fs):\n for f in fs: f()\n" for i in range(side))
    names: dict[str, Any] = {}
    exec(source, names)
    callees = [names[f"f{i}"] for i in range(side)]
    callers = [names[f"g{i}"] for i in range(side)]

    def everything() -> None:
        for caller in callers:
            caller(callees)

    def few() -> None:
        callers[0](callees[:20])

    return everything, few


def _step_costs(
    limit: int, contexts: int, steps: int, *, all_of_it: bool
) -> tuple[list[int], list[int]]:
    """Return in ns: the thread's CPU time in each call of ``step()``, and each step's time."""
    everything, few = _program(contexts)
    work = everything if all_of_it else few
    costs, took = [], []
    with fastprof_adapter.stepping(outliers=limit) as profiler:
        everything()
        for _ in range(steps):
            begin = time.perf_counter_ns()
            end = begin + STEP_NS
            work()
            while time.perf_counter_ns() < end:
                pass
            before = time.thread_time_ns()
            profiler.step()
            costs.append(time.thread_time_ns() - before)
            took.append(time.perf_counter_ns() - begin)
    return costs[10:], took[10:]


def run(options: Options) -> CaseResult:
    """Time steps of at least 1 ms with and without outliers, in turns."""
    why = fastprof_adapter.missing()
    if why:
        table = Table("outliers", ("what", "us"), (("fastprof", None),), (why,))
        return CaseResult("outliers", (table,), {"missing": why})
    steps = options.pick(1_000, 60)
    rounds = options.round_count(5, 1)
    rows: list[tuple[str | float | int | None, ...]] = []
    data: dict[str, Any] = {}
    for contexts in CONTEXTS:
        for all_of_it in (False, True):
            costs: dict[int, list[int]] = {0: [], 5: []}
            took: list[int] = []
            for _ in range(rounds):
                for limit, found in costs.items():
                    more, steps_ns = _step_costs(limit, contexts, steps, all_of_it=all_of_it)
                    found += more
                    took += steps_ns
            name = f"{contexts:,} contexts, {'all' if all_of_it else '20'} called in a step"
            mean = {limit: statistics.fmean(found) / 1e3 for limit, found in costs.items()}
            step_us = statistics.median(took) / 1e3
            extra = mean[5] - mean[0]
            rows.append((name, mean[0], mean[5], extra, step_us, 100 * extra / step_us))
            data[name] = {
                "without_us": mean[0],
                "with_us": mean[5],
                "step_us": step_us,
                "steps": len(costs[5]),
            }
    table = Table(
        "outliers: mean CPU time of step(), us, and what is more in % of a step",
        ("steps of 1 ms at least", "without", "outliers=5", "more", "a step", "% of it"),
        tuple(rows),
        (f"Target: <= {TARGET_SHARE:.1%} of the steps, slow ones left out.",),
    )
    return CaseResult("outliers", (table,), data)
