"""Two loaders in turns, each with its own batches.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    loaders = [
        DataLoader(TensorDataset(torch.randn(640, 64)), batch_size=64, shuffle=True)
        for _ in range(2)
    ]
    model = mlp(64, 1024, 1024, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        for (a,), (b,) in zip(*loaders, strict=True):
            for x in (a, b):
                update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
