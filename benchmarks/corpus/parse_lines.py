"""The dataset parses text for each sample, in the training process.

Right: data-loading.
Fix: data-loading --workers 1.
"""

from __future__ import annotations

import torch
from kit import mlp, number, start, update
from torch.utils.data import DataLoader, Dataset

WORDS = 256


class Words(Dataset):
    """Parses its text for each sample."""

    def __init__(self) -> None:
        self.lines = [" ".join(str(i * k % 97) for k in range(WORDS)) for i in range(512)]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.tensor([float(word) for word in self.lines[i].split()])


def main() -> None:
    start()
    workers = number("--workers", 0)
    loader = DataLoader(Words(), batch_size=32, num_workers=workers, persistent_workers=workers > 0)
    model = mlp(WORDS, 2048, WORDS)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(8):
        for x in loader:
            update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
