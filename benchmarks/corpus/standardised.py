"""Each sample is standardised by operators on small tensors: no cost of the network.

Right: data-loading.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch.utils.data import DataLoader, Dataset

WIDTH = 768


class Images(Dataset):
    """Standardises an image four times when it is read."""

    def __init__(self, count: int) -> None:
        self.raw = torch.rand(count, WIDTH)

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, i: int) -> torch.Tensor:
        image = self.raw[i]
        for _ in range(4):
            image = (image - image.mean()) / (image.std() + 1e-6)
        return image


def main() -> None:
    start()
    model = mlp(WIDTH, 256, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(4):
        for x in DataLoader(Images(1280), batch_size=32, shuffle=True):
            update(model(x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
