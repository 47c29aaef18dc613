"""A sampler that sorts all samples again for every epoch.

Right: sampler-time.
Fix: sampler-time --once.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from kit import flag, mlp, start, update
from torch.utils.data import DataLoader, Sampler, TensorDataset


class ByLength(Sampler[int]):
    """Samples of similar length together."""

    def __init__(self, count: int) -> None:
        self.count, self.order = count, sorted(range(count), key=length)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(self.order if flag("--once") else sorted(range(self.count), key=length))


def length(i: int) -> int:
    return sum(hash((i, k)) % 7 for k in range(60))


def main() -> None:
    start()
    data = TensorDataset(torch.randn(1024, 64))
    loader = DataLoader(data, batch_size=64, sampler=ByLength(len(data)))
    model = mlp(64, 512, 512, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        for (x,) in loader:
            update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
