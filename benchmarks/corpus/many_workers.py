"""Each epoch starts six worker processes for samples that are already in memory.

Right: loader-recreated, data-loading, worker-shutdown, cpu-contention.
Fix: loader-recreated --keep.
"""

from __future__ import annotations

import torch
from kit import flag, mlp, start, update
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    data = TensorDataset(torch.randn(1280, 128))
    loader = DataLoader(data, batch_size=64, num_workers=6, persistent_workers=flag("--keep"))
    model = mlp(128, 1024, 1024, 128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        for (x,) in loader:
            update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
