"""A checkpoint after every epoch of 40 steps.

Right: none.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    x = torch.randn(40, 64, 256)
    model = mlp(256, 1024, 1024, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(4):
            for batch in x:
                update((model(batch) - batch).square().mean(), optimizer)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, Path(folder) / "last.pt")


if __name__ == "__main__":
    main()
