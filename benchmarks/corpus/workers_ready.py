"""A worker that prepares its batches before the loop requests them.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    data = TensorDataset(torch.randn(4096, 128))
    loader = DataLoader(data, batch_size=32, num_workers=1, persistent_workers=True)
    model = mlp(128, 2048, 2048, 128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for (x,) in loader:
            update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
