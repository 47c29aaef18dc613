"""Scores a large test set after every fifth step, with gradients and in training mode.

Right: unaccounted, validation-share.
Fix: validation-share --every 50.
"""

from __future__ import annotations

import torch
from kit import mlp, number, start
from torch import nn


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:  # the cause
    right = 0.0
    for part, labels in zip(x.split(256), y.split(256), strict=True):
        right += float((model(part).argmax(1) == labels).sum())
    return right / len(x)


def main() -> None:
    start()
    x, y = torch.randn(8, 64, 128), torch.randint(0, 10, (8, 64))
    test_x, test_y = torch.randn(2048, 128), torch.randint(0, 10, (2048,))
    model = mlp(128, 512, 512, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(150):
        loss = nn.functional.cross_entropy(model(x[step % 8]), y[step % 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % number("--every", 5) == 0:
            print(step, accuracy(model, test_x, test_y))  # the cause


if __name__ == "__main__":
    main()
