"""Training loops with equal steps for ``unprofiled``, each in a separate process.

    python unprofiled_programs.py PROGRAM STEPS

Prints ``PER STEP`` and the median ms per step: alone, before and after the profiled run, and in
that run; then the report's estimate of a step without fastprof, and its error in ms; ``-`` for
unknown values.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fastprof
from workloads import module_tree

_NETWORK = module_tree(4, 2)


def calls() -> Callable[[], object]:
    """Nothing but short calls."""

    def step() -> float:
        return sum([_NETWORK(float(i)) for i in range(100)])

    return step


def mixed() -> Callable[[], object]:
    """Calls, bytecode, objects and C functions."""

    def step() -> int:
        total = int(sum([_NETWORK(float(i)) for i in range(10)]))
        for i in range(12_000):
            total += i * i % 7
        found: dict[int, list[str]] = {}
        for i in range(1_500):
            found.setdefault(i % 50, []).append(str(i))
        return total + len(sorted(found))

    return step


def loops() -> Callable[[], object]:
    """Almost no calls."""

    def step() -> int:
        total = 0
        for i in range(30_000):
            total = (total * 3 + i) & 0xFFFF
        return total

    return step


def small_torch() -> Callable[[], object]:
    """A small network on the CPU: many operators of a few microseconds."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    parts = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(8)]
    model = torch.nn.Sequential(*parts)
    # A network that learns to return 0 has denormal numbers after a thousand steps; its steps then
    # take 1.5 times as long, so they would not be equal.
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    batch = torch.randn(32, 64)

    def step() -> object:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        return optimizer.step()

    return step


PROGRAMS = {"calls": calls, "mixed": mixed, "loops": loops, "torch": small_torch}


def run(step: Callable[[], object], steps: int, **options: Any) -> tuple[float, fastprof.Profiler]:
    """Return the median ms of ``steps`` steps, and the profiler."""
    prof = fastprof.Profiler(log_every=0, gpu=False, **options)
    walls = []
    with prof:
        for _ in range(steps):
            began = time.perf_counter_ns()
            with fastprof.profile_section("work"):
                step()
            prof.step()
            walls.append(time.perf_counter_ns() - began)
    return median(walls) / 1e6, prof


def main(name: str, steps: int) -> None:
    step = PROGRAMS[name]()
    for _ in range(20):
        step()
    # No limit on the cost: every function stays recorded, because this program tests the estimate
    # of that cost.  Alone, the same lines do nothing.  Two processes of one program differ by some
    # per cent, so this process measures the real time, too, before and after.
    before, _ = run(step, steps // 2, enabled=False)
    _, prof = run(step, steps)
    after, _ = run(step, steps // 2, enabled=False)
    report = prof.report()
    found = report.steps.unprofiled
    said = "- -" if found is None else f"{found.ms} {found.error_ms}"
    print(f"PER STEP {before} {after} {report.steps.p50_ms} {said}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
