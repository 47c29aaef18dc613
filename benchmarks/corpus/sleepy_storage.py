"""The dataset waits for slow storage.

Right: data-loading.
Fix: data-loading --workers 2.
"""

from __future__ import annotations

import time

import torch
from kit import mlp, number, start, update
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    """Each sample comes after a wait."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(0.0005)
        return torch.full((256,), float(i))


def main() -> None:
    start()
    workers = number("--workers", 0)
    loader = DataLoader(
        Remote(), batch_size=16, num_workers=workers, persistent_workers=workers > 0
    )
    model = mlp(256, 2048, 1024, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for _ in range(6):
        for x in loader:
            update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
