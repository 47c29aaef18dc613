"""What the automatic sections of a PyTorch loop cost per step.

One process trains a small network; the hooks are put in and taken out again and again, and
the fastest step with and without them are compared.  Everything between is the hooks: batch,
forward, backward, optimizer, end of the step.

    python benchmarks/auto_sections.py --rounds 60
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Iterator
from typing import Any

from fastprof.integrations import torch_loop


def fastest(step: Any, batches: Iterator[Any], steps: int) -> float:
    """Return the shortest of so many steps in seconds."""
    best = float("inf")
    for _ in range(steps):
        began = time.perf_counter()
        step(*next(batches))
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(options.layers)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.ones(2 * 120 * (options.rounds + 1), 16))
    batches = iter(torch.utils.data.DataLoader(data, batch_size=2))

    def step(batch: Any) -> None:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    without, with_hooks = fastest(step, batches, 100), float("inf")
    for _ in range(options.rounds):
        without = min(without, fastest(step, batches, 50))
        with torch_loop.attach(functions=False, gpu=False):
            fastest(step, batches, 10)
            with_hooks = min(with_hooks, fastest(step, batches, 50))
    cost = with_hooks - without
    print(
        f"Python {platform.python_version()}, torch {torch.__version__}: "
        f"{without * 1e6:.0f} us without, {with_hooks * 1e6:.0f} us with automatic sections: "
        f"{cost * 1e6:.0f} us per step, {cost / 0.010:.2%} of a step of 10 ms"
    )


if __name__ == "__main__":
    main()
