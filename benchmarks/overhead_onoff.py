"""Compares the steps per second of a training job with profiling on and off (row S4-20).

Runs the same job repeatedly in one process; the modes take turns, in a new order each round: same
seeds, same batches, same loaders.  Compares within a round, because a machine that slows down
affects every mode alike.

    python benchmarks/overhead_onoff.py --rounds 15 --steps 200

The job is a small transformer if torch is installed, otherwise a network in pure Python.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import fastprof
from fastprof import profile_section
from fastprof.integrations import torch_loop

#: Name -> options of the Profiler; None: no profiler.
MODES: dict[str, dict[str, Any] | None] = {
    "off": None,
    "sections": {"functions": False},
    "automatic": {"functions": False},
    "default": {},
}
#: In modes with this name the loop has no sections; hooks on torch open them.
AUTOMATIC = "automatic"

Job = Callable[[fastprof.Profiler | None, int], None]


def torch_job(torch: Any) -> Job:
    """A transformer layer trained on random tokens."""
    torch.set_num_threads(1)

    def job(prof: fastprof.Profiler | None, steps: int) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Embedding(256, 64),
            torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True),
            torch.nn.Linear(64, 256),
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        criterion = torch.nn.CrossEntropyLoss()
        tokens = torch.randint(256, (8 * steps, 33))
        batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens), batch_size=8)
        section = profile_section if prof is not None else contextlib.nullcontext
        for (batch,) in batches if prof is None else prof.loader(batches, "main"):
            with section("forward"):
                logits = model(batch[:, :-1])
                loss = criterion(logits.flatten(0, 1), batch[:, 1:].flatten())
            with section("backward"):
                loss.backward()
            with section("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            if prof is not None:
                prof.step()

    return job


def python_job(prof: fastprof.Profiler | None, steps: int) -> None:
    """A perceptron with one hidden layer, in lists."""
    order = random.Random(0)
    width, inputs = 24, 12
    hidden = [[order.gauss(0, 0.3) for _ in range(inputs)] for _ in range(width)]
    output = [order.gauss(0, 0.3) for _ in range(width)]

    def batches() -> Iterator[list[list[float]]]:
        for _ in range(steps):
            yield [[order.random() for _ in range(inputs)] for _ in range(4)]

    for batch in batches() if prof is None else prof.loader(batches(), "main"):
        gradient = [0.0] * width
        with profile_section("forward"):
            states = [
                [math.tanh(sum(map(float.__mul__, row, sample))) for row in hidden]
                for sample in batch
            ]
            errors = [
                sum(map(float.__mul__, output, state)) - sum(sample)
                for state, sample in zip(states, batch, strict=True)
            ]
        with profile_section("backward"):
            for state, error in zip(states, errors, strict=True):
                for i, value in enumerate(state):
                    gradient[i] += error * value
        with profile_section("optimizer"):
            output = [w - 0.001 * g for w, g in zip(output, gradient, strict=True)]
        if prof is not None:
            prof.step()


def run(job: Job, name: str, steps: int) -> float:
    """Return the steps per second of one run in the mode ``name``."""
    options = MODES[name]
    if options is None:
        began = time.perf_counter()
        job(None, steps)
        return steps / (time.perf_counter() - began)
    if name == AUTOMATIC:
        with torch_loop.attach(logger=lambda metrics, step: None, **options):
            began = time.perf_counter()
            job(None, steps)
            return steps / (time.perf_counter() - began)
    with fastprof.Profiler(logger=lambda metrics, step: None, **options) as prof:
        began = time.perf_counter()
        job(prof, steps)
        return steps / (time.perf_counter() - began)


def measure(job: Job, rounds: int, steps: int) -> dict[str, list[float]]:
    """Return the steps per second of every round, by mode."""
    order = random.Random(0)
    modes = [name for name in MODES if name != AUTOMATIC or job is not python_job]
    for name in modes:  # warm-up: imports, allocators, specialised bytecode
        run(job, name, max(1, steps // 10))
    speeds: dict[str, list[float]] = {name: [] for name in modes}
    for _ in range(rounds):
        names = list(modes)
        order.shuffle(names)
        for name in names:
            speeds[name].append(run(job, name, steps))
    return speeds


def summary(speeds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return a row per mode: median speed, and slow-down against "off" within rounds."""
    rows = []
    for name, values in speeds.items():
        slower = sorted(
            100.0 * (off / value - 1.0) for off, value in zip(speeds["off"], values, strict=True)
        )
        rows.append(
            {
                "mode": name,
                "steps_per_s": statistics.median(values),
                "slower_pct": statistics.median(slower),
                "slower_pct_low": slower[len(slower) // 4],
                "slower_pct_high": slower[(3 * len(slower)) // 4],
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="runs per mode (default 15)")
    parser.add_argument("--steps", type=int, default=200, help="steps per run (default 200)")
    parser.add_argument("--pure", action="store_true", help="the job without torch")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.steps < 1:
        parser.error("--rounds and --steps must be at least 1")
    job: Job = python_job
    if not arguments.pure:
        try:
            import torch
        except ImportError:
            pass
        else:
            job = torch_job(torch)
    kind = "pure Python" if job is python_job else "torch"
    speeds = measure(job, arguments.rounds, arguments.steps)
    rows = summary(speeds)
    print(
        f"{kind} job, {arguments.rounds} rounds of {arguments.steps} steps, "
        f"Python {platform.python_version()}, {platform.machine()}"
    )
    print(f"{'mode':<10} {'steps/s':>10} {'slower %':>9}   middle half of the rounds")
    for row in rows:
        print(
            f"{row['mode']:<10} {row['steps_per_s']:>10.1f} {row['slower_pct']:>9.2f}   "
            f"{row['slower_pct_low']:.2f} to {row['slower_pct_high']:.2f}"
        )
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"job": kind, "rows": rows, "speeds": speeds}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
