"""Gradients of four batches per step of the optimizer.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start


def main() -> None:
    start()
    x = torch.randn(16, 64, 256)
    model = mlp(256, 1024, 1024, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(200):
        ((model(x[step % 16]) - x[step % 16]).square().mean() / 4).backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
