"""Few samples and large convolutions: a small batch with much work.

Right: none.
"""

from __future__ import annotations

import torch
from kit import start, update
from torch import nn


def main() -> None:
    start()
    x = torch.randn(4, 2, 3, 96, 96)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        update((model(x[step % 4]) - x[step % 4]).square().mean(), optimizer)


if __name__ == "__main__":
    main()
