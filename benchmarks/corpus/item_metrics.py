"""Metrics that read tensors value by value in every step.

Right: sync-item, unaccounted.
Fix: sync-item --whole.
"""

from __future__ import annotations

import torch
from kit import flag, mlp, start, update


def main() -> None:
    start()
    x, y = torch.randn(8, 128, 256), torch.randint(0, 10, (8, 128))
    model = mlp(256, 512, 512, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = 0
    for step in range(150):
        logits = model(x[step % 8])
        update(torch.nn.functional.cross_entropy(logits, y[step % 8]), optimizer)
        seen += whole(logits, y[step % 8]) if flag("--whole") else single(logits, y[step % 8])


def single(logits: torch.Tensor, y: torch.Tensor) -> int:
    right = 0
    for row, label in zip(logits, y, strict=True):
        values = [value.item() for value in row]
        right += values.index(max(values)) == label.item()
    return right


def whole(logits: torch.Tensor, y: torch.Tensor) -> int:
    return int((logits.argmax(1) == y).sum())


if __name__ == "__main__":
    main()
