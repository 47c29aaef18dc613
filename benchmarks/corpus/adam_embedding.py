"""Adam with one large table of embeddings.

Right: optimizer-unfused, backward-share.
Fix: optimizer-unfused --fused.
"""

from __future__ import annotations

import torch
from kit import flag, start, update
from torch import nn


class Recommender(nn.Module):
    """Users and things."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.things = nn.Embedding(20_000, 32), nn.Embedding(20_000, 32)

    def forward(self, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (self.users(u) * self.things(v)).sum(-1)


def main() -> None:
    start()
    pairs = torch.randint(0, 20_000, (16, 2, 1024))
    model = Recommender()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=flag("--fused"))
    for step in range(100):
        u, v = pairs[step % 16]
        update((model(u, v) - 1).square().mean(), optimizer)


if __name__ == "__main__":
    main()
