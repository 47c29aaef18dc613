"""A small convolutional network; the dataset normalizes with a module.

Right: none.
"""

from __future__ import annotations

import torch
from kit import start, update
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Pictures in memory."""

    def __init__(self) -> None:
        self.pixels = torch.rand(512, 1, 28, 28)
        self.normalize = Normalize()

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.normalize(self.pixels[i]), i % 10


class Normalize(nn.Module):
    """Zero mean, as torchvision's transform."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - 0.5) / 0.25


def main() -> None:
    start()
    loader = DataLoader(Images(), batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 144, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        for x, y in loader:
            update(nn.functional.cross_entropy(model(x), y), optimizer)


if __name__ == "__main__":
    main()
