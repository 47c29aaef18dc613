"""Measures the cost per call of profiling functions: fastprof, other profilers, the floor."""

from __future__ import annotations

import sys
from typing import Any

import fastprof_adapter
import harness
import peers
import workloads
from harness import Candidate, CaseResult, Cell, Options, Table

TARGET_RATIO = 1.25

#: Goals below cProfile's cost: (Python calls, C calls), by minor version of CPython.
TARGET_CPROFILE = {10: (2.0, 2.0), 11: (1.35, 1.7), 12: (1.5, 2.5), 13: (2.0, 3.0)}

#: yappi needs minutes for 10 000 functions: its cost per call grows with their number.
SLOW = {("many", "yappi (wall)")}


def candidates() -> list[Candidate]:
    """Return fastprof and the others; on 3.12+ also fastprof's second backend."""
    own = [fastprof_adapter.function_candidate()]
    if sys.version_info >= (3, 12):
        other = "fastprof, setprofile"
        own.append(fastprof_adapter.function_candidate(other, backend="setprofile"))
    return [*peers.floor(), *own, *peers.profilers()]


def _targets(workload: str) -> str:
    python, c = TARGET_CPROFILE[max(10, min(13, sys.version_info[1]))]
    goal = f"<= {TARGET_RATIO} x clock reads"
    if workload == "calls":
        goal += f", cProfile / {python:g}"
    if workload == "ccalls":
        goal += f", cProfile / {c:g}"
    return goal


def run(options: Options) -> CaseResult:
    """Time every workload under every candidate; one table per workload."""
    rounds = options.round_count(15, 3)
    everyone = candidates()
    tables: list[Table] = []
    data: dict[str, Any] = {}
    costs: dict[str, dict[str, float]] = {}
    for workload in workloads.function_workloads():
        repeat = max(1, workload.repeat // options.pick(1, 4))
        slow = {name for case, name in SLOW if case == workload.name}
        harness.settle()
        samples = harness.interleave(
            [c for c in everyone if c.name not in slow], workload.run, repeat, rounds
        )
        if slow and any(c.name in slow and not c.missing for c in everyone):
            late = [c for c in everyone if c.name in slow]
            samples.update(harness.interleave(late, workload.run, 1, 1))
        calls = workload.calls(1)
        per_call = {name: s.best * 1e9 / calls for name, s in samples.items()}
        base = per_call[peers.NONE]
        cost = {n: v - base for n, v in per_call.items() if n != peers.NONE}
        costs[workload.name] = cost
        rows: list[tuple[Cell, ...]] = []
        for candidate in everyone:
            if candidate.name == peers.NONE:
                continue
            if candidate.missing:
                rows.append((candidate.name, None, None, None, None))
                continue
            own = cost[candidate.name]
            rows.append(
                (
                    candidate.name,
                    own,
                    per_call[candidate.name] / base,
                    harness.ratio(own, cost.get(peers.CLOCKED)),
                    harness.ratio(own, cost.get(peers.CPROFILE)),
                )
            )
        tables.append(
            Table(
                f"functions / {workload.name} ({workload.what}): "
                f"{base:.1f} ns per call unprofiled; fastprof's target {_targets(workload.name)}",
                ("candidate", "cost ns/call", "slowdown x", "of clock reads", "of cProfile"),
                tuple(rows),
                tuple(f"{c.name}: {c.missing}" for c in everyone if c.missing),
            )
        )
        data[workload.name] = {
            "calls_per_slice": calls * repeat,
            "base_ns": base,
            "candidates": {
                name: {
                    "min_ns": per_call[name],
                    "median_ns": s.median * 1e9 / calls,
                    "cost_ns": cost.get(name),
                    "of_clock_reads": harness.ratio(cost.get(name), cost.get(peers.CLOCKED)),
                    "of_cprofile": harness.ratio(cost.get(name), cost.get(peers.CPROFILE)),
                }
                for name, s in samples.items()
            },
            "missing": {c.name: c.missing for c in everyone if c.missing},
        }
    tables.append(_growth(costs))
    return CaseResult("functions", tuple(tables), {"rounds": rounds, "workloads": data})


def _growth(costs: dict[str, dict[str, float]]) -> Table:
    rows = [
        (name, cost, costs["many"].get(name), harness.ratio(costs["many"].get(name), cost))
        for name, cost in costs["few"].items()
    ]
    return Table(
        "functions / growth with the number of functions, same loop, random orders",
        ("candidate", "10: ns/call", "10 000: ns/call", "growth x"),
        tuple(rows),
        ("The empty hook's growth is the machine's: cold code objects and callbacks.",),
    )
