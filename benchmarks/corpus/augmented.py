"""Augmentation on whole batches: 10 % of the step, and no bottleneck.

Right: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from kit import start, update
from torch import nn


def batches() -> Iterator[torch.Tensor]:
    images = torch.rand(256, 3, 32, 32)
    for _ in range(40):
        yield images[torch.randint(256, (32,))].flip(-1).add_(0.01)


def main() -> None:
    start()
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in batches():
        update(model(x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
