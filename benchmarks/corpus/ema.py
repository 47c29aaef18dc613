"""An average of the weights after every step.

Right: unaccounted.
Fix: unaccounted --every 20.
"""

from __future__ import annotations

import copy

import torch
from kit import mlp, number, start, update


def main() -> None:
    start()
    every = number("--every", 1)
    x = torch.randn(8, 16, 512)
    model = mlp(512, 1024, 1024, 512)
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(200):
        update((model(x[step % 8]) - x[step % 8]).square().mean(), optimizer)
        if step % every == 0:
            follow(average, model)


@torch.no_grad()
def follow(average: torch.nn.Module, model: torch.nn.Module) -> None:
    for _ in range(3):  # three rates, as some papers keep
        for a, b in zip(average.parameters(), model.parameters(), strict=True):
            a.lerp_(b, 0.001)


if __name__ == "__main__":
    main()
