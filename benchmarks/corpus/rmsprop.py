"""An optimizer without a fused version.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    x = torch.randn(8, 64, 256)
    model = mlp(256, 1024, 1024, 256)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    for step in range(100):
        update((model(x[step % 8]) - x[step % 8]).square().mean(), optimizer)


if __name__ == "__main__":
    main()
