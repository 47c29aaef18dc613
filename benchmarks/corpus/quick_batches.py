"""The process creates batches faster than a worker could send them.

Right: small-batch.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    data = TensorDataset(torch.randn(1024, 8))
    loader = DataLoader(data, batch_size=8)
    model = mlp(8, 512, 512, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        for (x,) in loader:
            update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
