"""A perceptron on tensors in memory, through a DataLoader.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    data = TensorDataset(torch.randn(2048, 64), torch.randint(0, 10, (2048,)))
    loader = DataLoader(data, batch_size=128, shuffle=True)
    model = mlp(64, 1024, 1024, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(8):
        for x, y in loader:
            update(torch.nn.functional.cross_entropy(model(x), y), optimizer)


if __name__ == "__main__":
    main()
