"""LBFGS: the optimizer calls a closure with forward and backward.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start


def main() -> None:
    start()
    x, y = torch.randn(512, 64), torch.randn(512, 1)
    model = mlp(64, 512, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=8)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    for _ in range(30):
        optimizer.step(closure)


if __name__ == "__main__":
    main()
