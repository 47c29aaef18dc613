"""Every step reads and keeps the loss, as in most programs.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    x, y = torch.randn(8, 128, 256), torch.randint(0, 10, (8, 128))
    model = mlp(256, 1024, 512, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses: list[float] = []
    for step in range(150):
        loss = torch.nn.functional.cross_entropy(model(x[step % 8]), y[step % 8])
        update(loss, optimizer)
        losses.append(loss.item())
        if step % 50 == 0:
            print(step, losses[-1])


if __name__ == "__main__":
    main()
