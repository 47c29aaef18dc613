"""Every step writes a line to a file and waits until it is on the disk.

    fastprof run examples/problems/synchronous_logging.py            # the problem
    fastprof run examples/problems/synchronous_logging.py --healthy  # every 50 steps, unwaited

Rule: logging-share.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import TextIO

import torch

HEALTHY = "--healthy" in sys.argv
FEATURES, STEPS = 256, 150


def log_metrics(file: TextIO, step: int, model: torch.nn.Module, loss: torch.Tensor) -> None:
    norms = {name: p.norm().item() for name, p in model.named_parameters()}
    file.write(json.dumps({"step": step, "loss": loss.item(), "norms": norms}) + "\n")
    if not HEALTHY:
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 512), torch.nn.ReLU(), torch.nn.Linear(512, FEATURES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.randn(8, 128, FEATURES)
    with tempfile.NamedTemporaryFile("w", dir=".", suffix=".jsonl") as file:
        for step in range(STEPS):
            batch = batches[step % len(batches)]
            loss = (model(batch) - batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not HEALTHY or step % 50 == 0:
                log_metrics(file, step, model, loss)


if __name__ == "__main__":
    main()
