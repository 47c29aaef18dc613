"""Adaptation at test time: normalization layers follow each batch before it is classified.

Right: none.
"""

from __future__ import annotations

import torch
from kit import start, update
from torch import nn


def main() -> None:
    start()
    images = torch.rand(6, 32, 3, 32, 32)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Flatten(), nn.Linear(64 * 49, 10),
    )  # fmt: skip
    model.requires_grad_(False)
    adapted = []
    for layer in model:
        if isinstance(layer, nn.BatchNorm2d):
            adapted += list(layer.requires_grad_(True).parameters())
    optimizer = torch.optim.SGD(adapted, lr=1e-3)
    right = 0
    for step in range(80):
        x = images[step % 6]
        logits = model(x)
        entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        update(entropy, optimizer)
        right += int((logits.argmax(1) == 0).sum())


if __name__ == "__main__":
    main()
