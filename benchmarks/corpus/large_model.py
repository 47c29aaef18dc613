"""Few and large operations.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    x, y = torch.randn(4, 256, 1024), torch.randn(4, 256, 1024)
    model = mlp(1024, 2048, 2048, 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        update((model(x[step % 4]) - y[step % 4]).square().mean(), optimizer)


if __name__ == "__main__":
    main()
