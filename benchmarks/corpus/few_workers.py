"""One worker, although the loop needs two.

Right: data-loading.
Fix: data-loading --workers 2.
"""

from __future__ import annotations

import time

import torch
from kit import mlp, number, start, update
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    """A sample costs little except a wait."""

    def __len__(self) -> int:
        return 320

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(0.001)
        return torch.full((128,), float(i))


def main() -> None:
    start()
    loader = DataLoader(
        Slow(), batch_size=16, num_workers=number("--workers", 1), persistent_workers=True
    )
    model = mlp(128, 1024, 1024, 128)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for _ in range(5):
        for x in loader:
            update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
