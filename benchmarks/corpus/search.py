"""A search for settings: the same training repeatedly, with different settings.

Right: none.
"""

from __future__ import annotations

import random

import torch
from kit import mlp, start, update
from torch.utils.data import DataLoader, TensorDataset


def trial(width: int, rate: float) -> float:
    x = torch.randn(2560, 128)
    model = mlp(128, width, width, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    for (batch,) in DataLoader(TensorDataset(x), batch_size=128):
        update((model(batch) - batch.sum(1, keepdim=True)).square().mean(), optimizer)
    model.eval()
    with torch.no_grad():
        return float((model(x) - x.sum(1, keepdim=True)).square().mean())


def main() -> None:
    start()
    choose = random.Random(0)
    results = [(trial(w, r), w, r) for w, r in ((1024, 10 ** -choose.uniform(2, 4)),) * 6]
    print(min(results))


if __name__ == "__main__":
    main()
