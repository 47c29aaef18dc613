"""Validation after every 25 steps, with a separate loader.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    data = TensorDataset(torch.randn(1600, 64), torch.randint(0, 10, (1600,)))
    held = TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,)))
    loader, judge = DataLoader(data, batch_size=64, shuffle=True), DataLoader(held, batch_size=64)
    model = mlp(64, 1024, 1024, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        model.train()
        for x, y in loader:
            update(torch.nn.functional.cross_entropy(model(x), y), optimizer)
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in judge)
        print(right / len(held))


if __name__ == "__main__":
    main()
