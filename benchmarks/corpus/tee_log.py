"""stdout is a Tee of the program that flushes and syncs its file after each of many lines.

Right: logging-share, unaccounted.
Fix: logging-share --every 50.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch
from kit import mlp, number, start, update


class Tee:
    """Writes to the terminal and to a file."""

    def __init__(self, path: Path) -> None:
        self.terminal, self.file = sys.stdout, path.open("w")

    def write(self, text: str) -> int:  # the cause
        self.terminal.write(text)
        self.file.write(text)
        self.file.flush()
        os.fsync(self.file.fileno())  # the cause
        return len(text)

    def flush(self) -> None:
        self.terminal.flush()


def main() -> None:
    start()
    x, y = torch.randn(8, 64, 128), torch.randint(0, 10, (8, 64))
    model = mlp(128, 512, 512, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as folder:
        terminal, sys.stdout = sys.stdout, Tee(Path(folder) / "log.txt")
        for step in range(150):
            loss = torch.nn.functional.cross_entropy(model(x[step % 8]), y[step % 8])
            update(loss, optimizer)
            if step % number("--every", 1) == 0:
                print("step", step)  # the cause
                print("loss", float(loss))  # the cause
                print("lr", optimizer.param_groups[0]["lr"])  # the cause
        sys.stdout = terminal


if __name__ == "__main__":
    main()
