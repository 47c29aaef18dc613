"""Compares the profile's shares of components with their known, unprofiled shares.

A program calls each of its components once.  A profiler is accurate if each component's share, and
the sum of all self times, are right.  Several processes measure, because fastprof calibrates itself
once in each; first on the machine as it is, then while other processes keep every CPU busy.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import fastprof_adapter
import harness
from harness import CaseResult, Cell, Options, Table

TARGET_POINTS = {"quiet": 3.0, "loaded": 6.0}

_BUSY = "while True: pass"


@contextlib.contextmanager
def _every_cpu_busy() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _process(rounds: int, divisor: int) -> dict[str, Any]:
    command = harness.child_command("truth", rounds, divisor)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _table(mode: str, runs: list[dict[str, Any]]) -> Table:
    """Return the median and the worst process, per program and profiler."""
    profilers = list(next(iter(runs[0].values()))["profilers"])
    rows: list[tuple[Cell, ...]] = []
    worst = dict.fromkeys(profilers, 0.0)
    for title in runs[0]:
        row: list[Cell] = [title]
        for name in profilers:
            found = [run[title]["profilers"][name] for run in runs]
            errors = [f["max_error_points"] for f in found]
            worst[name] = max(worst[name], *errors)
            total = statistics.median(f["sum_over_wall"] for f in found)
            row.append(f"{statistics.median(errors):.1f} ({max(errors):.1f}) / {total:.2f}")
        rows.append(tuple(row))
    rows.append(("worst of all", *(f"{worst[name]:.1f}" for name in profilers)))
    remarks = [
        "Largest error of a component's share in points: median of the processes (worst of them)",
        "/ sum of the components' times over the unprofiled one.",
        f"Target on 3.12 and later: worst error <= {TARGET_POINTS[mode]:g} points.",
    ]
    if fastprof_adapter.missing():
        remarks.append(f"fastprof: {fastprof_adapter.missing()}")
    return Table(
        f"truth, {mode}: {len(runs)} processes",
        ("program", *profilers),
        tuple(rows),
        tuple(remarks),
    )


def _components(mode: str, runs: list[dict[str, Any]]) -> Table:
    """Return the share of every component, in the process in which fastprof was worst."""
    rows: list[tuple[Cell, ...]] = []
    profilers = list(next(iter(runs[0].values()))["profilers"])
    for title in runs[0]:
        run = max(
            (r[title] for r in runs),
            key=lambda r: float(r["profilers"][profilers[0]]["max_error_points"]),
        )
        rows += [
            (
                f"{title}: {name}",
                share,
                *(run["profilers"][p]["shares"].get(name) for p in profilers),
            )
            for name, share in run["true_shares"].items()
        ]
    return Table(
        f"truth, {mode}: share of each component in %, in the worst process",
        ("program: component", "true", *profilers),
        tuple(rows),
    )


def run(options: Options) -> CaseResult:
    """Compare the shares that profilers report with those measured without a profiler."""
    rounds = options.round_count(41, 2)
    processes = options.pick(3, 1)
    divisor = options.pick(1, 10)
    data: dict[str, Any] = {"rounds": rounds}
    tables = []
    for mode in TARGET_POINTS:
        with _every_cpu_busy() if mode == "loaded" else contextlib.nullcontext():
            runs = [_process(rounds, divisor) for _ in range(processes)]
        data[mode] = runs
        tables += [_table(mode, runs), _components(mode, runs)]
    return CaseResult("truth", tuple(tables), data)
