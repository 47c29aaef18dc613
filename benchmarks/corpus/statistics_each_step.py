"""Each step computes the mean and deviation of the whole data set.

Right: unaccounted.
Fix: unaccounted --once.
"""

from __future__ import annotations

import torch
from kit import flag, mlp, start, update


def normalized(data: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return (data[rows] - data.mean(0)) / data.std(0)


def main() -> None:
    start()
    data = torch.randn(20_000, 128)
    if flag("--once"):
        data = (data - data.mean(0)) / data.std(0)
    model = mlp(128, 512, 128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(80):
        rows = torch.randint(0, len(data), (64,))
        x = data[rows] if flag("--once") else normalized(data, rows)
        update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
