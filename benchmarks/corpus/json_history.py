"""Every step rewrites the history of all steps as JSON.

Right: logging-share, unaccounted.
Fix: logging-share --every 100.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from kit import mlp, number, start, update


def save(history: list[dict[str, float]], path: Path) -> None:
    with path.open("w") as stream:
        json.dump(history, stream, indent=2)


def main() -> None:
    start()
    x = torch.randn(8, 64, 256)
    model = mlp(256, 512, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    history: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for step in range(300):
            loss = (model(x[step % 8]) - x[step % 8]).square().mean()
            update(loss, optimizer)
            history.append({"step": step, "loss": loss.item(), "lr": 0.01})
            if step % number("--every", 1) == 0:
                save(history, Path(folder) / "history.json")


if __name__ == "__main__":
    main()
