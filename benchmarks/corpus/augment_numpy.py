"""Images in numpy, augmented one by one by transforms that loop over channels and rows.

Right: data-loading.
Fix: data-loading --batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from kit import flag, start, update
from torch import nn
from torch.utils.data import DataLoader, Dataset

RANDOM = np.random.default_rng(0)


class RandomCrop:
    """Pads by 4 pixels and crops."""

    def __call__(self, image: np.ndarray) -> np.ndarray:
        padded = np.pad(image, ((0, 0), (4, 4), (4, 4)), mode="reflect")
        x, y = RANDOM.integers(0, 9, 2)
        return padded[:, y : y + 32, x : x + 32]


class ColorJitter:
    """Another brightness and contrast for each channel."""

    def __call__(self, image: np.ndarray) -> np.ndarray:
        out = np.empty_like(image)
        for channel in range(3):
            gain, shift = RANDOM.uniform(0.8, 1.2), RANDOM.uniform(-0.1, 0.1)
            out[channel] = np.clip(image[channel] * gain + shift, 0, 1)
        return out


class Scanlines:
    """Noise of a different strength in every row."""

    def __call__(self, image: np.ndarray) -> np.ndarray:  # the cause
        out = image.copy()
        for row in range(image.shape[1]):
            out[:, row] += RANDOM.normal(0, RANDOM.uniform(0, 0.1), out[:, row].shape)  # the cause
        return out


class Images(Dataset):
    """Random images with ten labels."""

    def __init__(self, transforms: list[Callable[[np.ndarray], np.ndarray]]) -> None:
        self.images = np.random.default_rng(1).random((480, 3, 32, 32), dtype=np.float32)
        self.transforms = transforms

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        image = self.images[i]
        for transform in self.transforms:
            image = transform(image)  # the cause
        return torch.from_numpy(np.ascontiguousarray(image, dtype=np.float32)), i % 10


def augmented(x: torch.Tensor) -> torch.Tensor:
    """The same for a whole batch: the fix."""
    n = len(x)
    x = (x * torch.empty(n, 3, 1, 1).uniform_(0.8, 1.2)).clamp(0, 1)
    return x + torch.randn_like(x) * torch.rand(n, 1, 32, 1) * 0.1


def main() -> None:
    start()
    whole = flag("--batch")
    data = Images([] if whole else [RandomCrop(), ColorJitter(), Scanlines()])
    loader = DataLoader(data, batch_size=32, shuffle=True)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 49, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for _ in range(3):
        for x, y in loader:
            x = augmented(x) if whole else x
            update(nn.functional.cross_entropy(net(x), y), optimizer)


if __name__ == "__main__":
    main()
