"""The program copies the best parameters whenever the loss falls: in most steps.

Right: unaccounted, tensor-copies.
Fix: unaccounted --every 20.
"""

from __future__ import annotations

import copy

import torch
from kit import mlp, number, start, update


def keep(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return copy.deepcopy(model.state_dict())


def main() -> None:
    start()
    x = torch.randn(16, 512)
    model = mlp(512, 2048, 2048, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best, kept = float("inf"), {}
    for step in range(80):
        loss = (model(x) - x).square().mean()
        update(loss, optimizer)
        if loss.item() < best and step % number("--every", 1) == 0:
            best, kept = loss.item(), keep(model)
    print(len(kept))


if __name__ == "__main__":
    main()
