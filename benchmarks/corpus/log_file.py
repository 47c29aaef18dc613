"""Every step writes and flushes a line to a file: little compared to the step.

Right: none.
"""

from __future__ import annotations

import tempfile

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    x = torch.randn(8, 128, 512)
    model = mlp(512, 1024, 1024, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryFile("w") as log:
        for step in range(80):
            loss = (model(x[step % 8]) - x[step % 8]).square().mean()
            update(loss, optimizer)
            log.write(f"{step} {loss.item():.4f}\\n")
            log.flush()


if __name__ == "__main__":
    main()
