"""Attention whose causal mask is filled row by row, in each layer of each step.

Right: tensor-loop.
Fix: tensor-loop --triu.
"""

from __future__ import annotations

import math

import torch
from kit import flag, start, update
from torch import nn

LENGTH, WIDTH = 160, 32


class Attention(nn.Module):
    """One head with its own mask."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def mask(self, n: int) -> torch.Tensor:  # the cause
        if flag("--triu"):
            return torch.full((n, n), float("-inf")).triu(1)
        m = torch.zeros(n, n)
        for i in range(n):
            m[i, i + 1 :] = float("-inf")  # the cause
        return m

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / math.sqrt(WIDTH) + self.mask(x.shape[1])
        return x + self.out(scores.softmax(-1) @ v)


def main() -> None:
    start()
    x, y = torch.randn(4, 2, LENGTH, WIDTH), torch.randint(0, 10, (4, 2, LENGTH))
    model = nn.Sequential(*(Attention() for _ in range(4)), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for step in range(60):
        scores = model(x[step % 4])
        update(nn.functional.cross_entropy(scores.flatten(0, 1), y[step % 4].flatten()), optimizer)


if __name__ == "__main__":
    main()
