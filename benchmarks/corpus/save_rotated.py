"""Keeps the last three checkpoints, and writes one after every other step.

Right: checkpoint-often.
Fix: checkpoint-often --every 100.
"""

from __future__ import annotations

import os
import tempfile

import torch
from kit import mlp, number, start, update
from torch import nn
from torch.optim import Optimizer


class Saver:
    """Writes checkpoints and removes old ones."""

    def __init__(self, folder: str, keep: int = 3) -> None:
        self.folder, self.keep, self.paths = folder, keep, list[str]()

    def save(self, step: int, **parts: nn.Module | Optimizer) -> None:  # the cause
        path = os.path.join(self.folder, f"ckpt-{step}.pt")
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save({"step": step, **state}, path + ".tmp")  # the cause
        os.replace(path + ".tmp", path)
        self.paths.append(path)
        while len(self.paths) > self.keep:
            os.remove(self.paths.pop(0))


def main() -> None:
    start()
    x, y = torch.randn(8, 64, 128), torch.randint(0, 10, (8, 64))
    model = mlp(128, 384, 384, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        saver = Saver(folder)
        for step in range(120):
            update(torch.nn.functional.cross_entropy(model(x[step % 8]), y[step % 8]), optimizer)
            if step % number("--every", 2) == 0:
                saver.save(step, model=model, optimizer=optimizer)  # the cause


if __name__ == "__main__":
    main()
