"""Samples are quick, but a loop in Python combines them.

Right: data-loading.
Fix: data-loading --workers 1.
"""

from __future__ import annotations

import torch
from kit import mlp, number, start, update
from torch.utils.data import DataLoader

WIDTH = 128


def collate(samples: list[list[int]]) -> torch.Tensor:
    """Counts of each value, by hand."""
    rows = []
    for sample in samples:
        counts = [0.0] * WIDTH
        for value in sample:
            counts[value % WIDTH] += 1.0
        rows.append(counts)
    return torch.tensor(rows)


def main() -> None:
    start()
    samples = [[(i * k) % 1009 for k in range(2000)] for i in range(512)]
    workers = number("--workers", 0)
    loader = DataLoader(
        samples,  # type: ignore[arg-type]
        batch_size=64, collate_fn=collate, num_workers=workers, persistent_workers=workers > 0,
    )  # fmt: skip
    model = mlp(WIDTH, 2048, 1024, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(8):
        for x in loader:
            update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
