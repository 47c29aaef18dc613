"""A worker loads small batches faster than the loop receives them.

Right: batch-receiving, small-batch.
Fix: batch-receiving --workers 0.
"""

from __future__ import annotations

import torch
from kit import mlp, number, start, update
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    """A sample costs almost nothing."""

    def __len__(self) -> int:
        return 3200

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.randn(64), i % 10


def main() -> None:
    start()
    workers = number("--workers", 1)
    loader = DataLoader(
        Points(), batch_size=32, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    model = mlp(64, 64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        for x, y in loader:
            update(nn.functional.cross_entropy(model(x), y), optimizer)


if __name__ == "__main__":
    main()
