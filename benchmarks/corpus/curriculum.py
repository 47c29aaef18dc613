"""A batch that grows during training: steps become longer because they do more.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    data = TensorDataset(torch.randn(4096, 256))
    model = mlp(256, 1024, 1024, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in (64, 128, 256):
        for (x,) in DataLoader(data, batch_size=batch, shuffle=True):
            update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
