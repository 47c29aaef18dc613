"""A mixture of four experts; each gets the rows that a router chose for it.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch import nn


class Mixture(nn.Module):
    """The best expert of each row, weighted by the router."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(128, 4)
        self.experts = nn.ModuleList(mlp(128, 512, 128) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, chosen = self.router(x).softmax(1).max(1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (chosen == i).nonzero().squeeze(1)
            out = out.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        return out


def main() -> None:
    start()
    x = torch.randn(8, 512, 128)
    model = Mixture()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for step in range(100):
        update((model(x[step % 8]) - x[step % 8]).square().mean(), optimizer)


if __name__ == "__main__":
    main()
