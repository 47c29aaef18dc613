"""Shared by the scripts of the corpus: options, models, and work before the loop."""

from __future__ import annotations

import gc
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn


def start() -> None:
    """Set the seed and one thread; then do slow work, like real programs before they train."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if "--light" not in sys.argv:
        heavy_setup()


def heavy_setup() -> None:
    """Half a second of work that would cause findings inside the loop."""
    labels = torch.randint(0, 10, (20_000,))
    _ = [label.item() for label in labels]
    for _ in range(3):
        gc.collect()
    for i in range(2000):
        print("preparing", i, file=sys.stderr)
    order = list(range(20_000))
    for _ in range(5):
        order = bucket(order)
    for _ in range(20):
        torch.randn(300, 300).clone().double()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(3):
            torch.save({"x": torch.randn(100_000)}, Path(folder) / f"{i}.pt")


def bucket(order: list[int]) -> list[int]:
    """Sort indices by a made-up length."""
    return sorted(order, key=lambda i: hash((i, 7 * i)) % 100)


def number(name: str, default: int) -> int:
    """Return the number after an option on the command line."""
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def flag(name: str) -> bool:
    """Return whether an option is on the command line."""
    return name in sys.argv


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        layers += [nn.ReLU()] if i else []
        layers.append(nn.Linear(a, b))
    return nn.Sequential(*layers)


def update(loss: torch.Tensor, *optimizers: torch.optim.Optimizer) -> None:
    """One step of each optimizer."""
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
