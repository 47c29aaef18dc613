"""A perceptron on batches in memory, without a loader.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    xs, ys = torch.randn(16, 128, 256), torch.randint(0, 10, (16, 128))
    model = mlp(256, 1024, 1024, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(200):
        x, y = xs[step % 16], ys[step % 16]
        update(torch.nn.functional.cross_entropy(model(x), y), optimizer)


if __name__ == "__main__":
    main()
