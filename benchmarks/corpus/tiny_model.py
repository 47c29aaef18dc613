"""A model so small that a step costs mostly the calls of its operations.

Right: small-batch.
Fix: small-batch --batch 64 x2.
"""

from __future__ import annotations

import torch
from kit import mlp, number, start, update
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    batch = number("--batch", 32)
    data = TensorDataset(torch.randn(8 * batch, 16), torch.randint(0, 2, (8 * batch,)))
    loader = DataLoader(data, batch_size=batch, collate_fn=collate)
    model = mlp(16, 32, 32, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(60):
        for x, y in loader:
            update(torch.nn.functional.cross_entropy(model(x), y), optimizer)


def collate(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    xs, ys = zip(*rows, strict=True)
    return torch.stack(xs), torch.stack(ys)


if __name__ == "__main__":
    main()
