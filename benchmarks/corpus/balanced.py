"""A balanced sampler that searches the labels again for every batch.

Right: sampler-time.
Fix: sampler-time --index.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from kit import flag, mlp, start, update
from torch.utils.data import DataLoader, Sampler, TensorDataset

CLASSES = 8


class BalancedSampler(Sampler[list[int]]):
    """Batches with as many samples of each class."""

    def __init__(self, labels: list[int], each: int, batches: int) -> None:
        self.labels, self.each, self.batches = labels, each, batches
        self.index = [[i for i, y in enumerate(labels) if y == c] for c in range(CLASSES)]

    def __len__(self) -> int:
        return self.batches

    def of_class(self, c: int) -> list[int]:  # the cause
        if flag("--index"):
            return self.index[c]
        return [i for i, y in enumerate(self.labels) if y == c]

    def __iter__(self) -> Iterator[list[int]]:  # the cause
        for _ in range(self.batches):
            batch = []
            for c in range(CLASSES):
                batch += random.sample(self.of_class(c), self.each)  # the cause
            yield batch


def main() -> None:
    start()
    random.seed(0)
    labels = torch.randint(0, CLASSES, (4000,))
    data = TensorDataset(torch.randn(4000, 128), labels)
    sampler = BalancedSampler(labels.tolist(), 16, 40)
    loader = DataLoader(data, batch_sampler=sampler)
    model = mlp(128, 768, 768, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        for x, y in loader:
            update(torch.nn.functional.cross_entropy(model(x), y), optimizer)


if __name__ == "__main__":
    main()
