"""Two losses with one backward pass each.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start


def main() -> None:
    start()
    x = torch.randn(8, 96, 256)
    model, head = mlp(256, 1024, 512), mlp(512, 64, 10)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
    for step in range(100):
        h = model(x[step % 8])
        optimizer.zero_grad()
        h.square().mean().backward(retain_graph=True)
        head(h).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
