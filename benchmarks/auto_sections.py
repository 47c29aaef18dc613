"""Measures the cost per step of the automatic sections in a PyTorch loop.

One process trains a small network.  It adds and removes the hooks repeatedly, and compares the
median of the fastest steps with and without them.  The difference is the cost of all hooks: batch,
forward, backward, optimizer, end of the step.  `timed` is the part that fastprof measures itself;
the rest is the calls of the hooks, and torch's extra time because hooks exist.

    python benchmarks/auto_sections.py --rounds 60
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from cases.windows_programs import lstm, mlp
from fastprof.integrations import torch_loop

#: Steps of a block; only the fastest third counts.
_STEPS, _FASTEST = 60, 20

Step = Callable[[], None]


def loader(torch: Any) -> Step:
    """Batches of a DataLoader, four layers, SGD."""
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.ones(1_000_000, 16))
    batches = iter(torch.utils.data.DataLoader(data, batch_size=2))

    def step() -> None:
        model(next(batches)[0]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def cells(torch: Any) -> Step:
    """48 calls of an LSTM cell, each one an outermost module; SGD."""
    return lstm(torch, length=48)


def fastest(step: Step) -> list[float]:
    """Return the shortest steps of a block in seconds."""
    times = []
    for _ in range(_STEPS):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return sorted(times)[:_FASTEST]


def timed_ns(run: Any) -> int:
    """Return the time that the hooks of a run have measured of themselves so far."""
    return int(run._run.own_time.ns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    print(f"Python {platform.python_version()}, torch {torch.__version__}; us per step")
    for program in (loader, mlp, cells):
        step = program(torch)
        without, with_hooks, timed = fastest(step), [], []
        for _ in range(options.rounds):
            without += fastest(step)
            with torch_loop.attach(functions=False, gpu=False) as run:
                for _ in range(15):
                    step()
                before = timed_ns(run)
                with_hooks += fastest(step)
                timed.append((timed_ns(run) - before) / _STEPS / 1e3)
        alone, hooked, own = median(without) * 1e6, median(with_hooks) * 1e6, median(timed)
        print(
            f"{program.__name__}: {alone:.0f} without, {hooked:.0f} with automatic sections: "
            f"{hooked - alone:.1f} more, of which {own:.1f} are timed"
        )


if __name__ == "__main__":
    main()
