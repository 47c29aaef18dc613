"""A fused optimizer that takes a good part of a small batch.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    x = torch.randn(8, 16, 512)
    model = mlp(512, 2048, 2048, 512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for step in range(100):
        update((model(x[step % 8]) - x[step % 8]).square().mean(), optimizer)


if __name__ == "__main__":
    main()
