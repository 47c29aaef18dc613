"""Two passes of one network, and a loss between them.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    x = torch.randn(8, 2, 96, 256)
    model = mlp(256, 1024, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(100):
        a, b = (torch.nn.functional.normalize(model(part), dim=1) for part in x[step % 8])
        update(torch.nn.functional.cross_entropy(a @ b.T, torch.arange(96)), optimizer)


if __name__ == "__main__":
    main()
