"""A recurrent cell in a Python loop over time: thousands of small operations.

Right: small-batch, tensor-loop.
Fix: small-batch --batch 16 x2.
"""

from __future__ import annotations

import torch
from kit import number, start, update
from torch import nn


class Sequence(nn.Module):
    """Predicts the next value of a curve."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(1, 32), nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = torch.zeros(len(x), 32)
        out = []
        for value in x.split(1, dim=1):
            h, c = self.cell(value, (h, c))
            out.append(self.head(h))
        return torch.cat(out, dim=1)


def main() -> None:
    start()
    batch = number("--batch", 8)
    x = torch.sin(torch.linspace(0, 20, 101) + torch.rand(batch, 1))
    model = Sequence()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(50):
        update((model(x[:, :-1]) - x[:, 1:]).square().mean(), optimizer)


if __name__ == "__main__":
    main()
