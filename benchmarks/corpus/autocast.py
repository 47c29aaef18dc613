"""bfloat16 by autocast, which pays only on CPUs that have instructions for it.

Right: backward-share.
Fix: backward-share --float32.
"""

from __future__ import annotations

import torch
from kit import flag, mlp, start, update


def main() -> None:
    start()
    x = torch.randn(8, 32, 512)
    model = mlp(512, 2048, 2048, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        with torch.autocast("cpu", torch.bfloat16, enabled=not flag("--float32")):
            loss = (model(x[step % 8]) - x[step % 8]).square().mean()
        update(loss, optimizer)


if __name__ == "__main__":
    main()
