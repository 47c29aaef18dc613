"""A stream that a worker reads ahead.

Right: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from kit import mlp, start, update
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    """Samples as they come."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        made = torch.Generator().manual_seed(0)
        for _ in range(100):
            yield from torch.randn(64, 128, generator=made)


def main() -> None:
    start()
    loader = DataLoader(Stream(), batch_size=64, num_workers=1)
    model = mlp(128, 2048, 2048, 128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in loader:
        update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
