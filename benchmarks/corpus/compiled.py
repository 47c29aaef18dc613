"""A model that torch.compile traces, which takes a while before the first step.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    x = torch.randn(8, 128, 256)
    model = mlp(256, 1024, 1024, 256)
    fast = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(80):
        update((fast(x[step % 8]) - x[step % 8]).square().mean(), optimizer)


if __name__ == "__main__":
    main()
