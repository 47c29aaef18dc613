"""Samples from a memory-mapped array on disk.

Right: none.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from kit import mlp, start, update
from torch.utils.data import DataLoader, Dataset


class Mapped(Dataset):
    """Rows of a file."""

    def __init__(self, path: Path) -> None:
        self.rows = np.memmap(path, dtype=np.int16, mode="r", shape=(2048, 256))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.from_numpy(self.rows[i].astype(np.float32))


def main() -> None:
    start()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.bin"
        np.random.default_rng(0).integers(-9, 9, (2048, 256)).astype(np.int16).tofile(path)
        model = mlp(256, 2048, 1024, 256)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
        for _ in range(3):
            for x in DataLoader(Mapped(path), batch_size=64, shuffle=True):
                update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
