"""The dataset reads a pandas table row by row.

Right: data-loading.
Fix: data-loading --workers 1.
"""

from __future__ import annotations

import pandas as pd
import torch
from kit import mlp, number, start, update
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    """Rows of a frame, converted one by one."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, float]:
        row = self.frame.iloc[i]
        return torch.tensor(row.drop("y").to_numpy(dtype="float32")), float(row["y"])


def main() -> None:
    start()
    values = torch.rand(1024, 40).numpy()
    frame = pd.DataFrame(values, columns=[f"f{i}" for i in range(39)] + ["y"])
    workers = number("--workers", 0)
    loader = DataLoader(
        Rows(frame), batch_size=64, num_workers=workers, persistent_workers=workers > 0
    )
    model = mlp(39, 1024, 1024, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        for x, y in loader:
            update((model(x).squeeze(1) - y.float()).square().mean(), optimizer)


if __name__ == "__main__":
    main()
