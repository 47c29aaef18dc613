"""AdamW with many small parameters.

Right: optimizer-unfused.
Fix: optimizer-unfused --fused.
"""

from __future__ import annotations

import torch
from kit import flag, start, update
from torch import nn


class Block(nn.Module):
    """A small layer with its norm: four parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(96), nn.Linear(96, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.norm(x)).relu()


def main() -> None:
    start()
    x = torch.randn(8, 256, 96)
    model = nn.Sequential(*(Block() for _ in range(16)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=flag("--fused"))
    for step in range(100):
        update((model(x[step % 8]) - x[step % 8]).square().mean(), optimizer)


if __name__ == "__main__":
    main()
