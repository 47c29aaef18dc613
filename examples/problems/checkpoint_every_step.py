"""The model and the optimizer are saved after every step.

    fastprof run examples/problems/checkpoint_every_step.py            # the problem
    fastprof run examples/problems/checkpoint_every_step.py --healthy  # saved at the end

Rule: checkpoint-often.
"""

from __future__ import annotations

import os
import sys
import tempfile

import torch

HEALTHY = "--healthy" in sys.argv
FEATURES, STEPS = 256, 100


def save(folder: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, os.path.join(folder, "last.pt"))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, FEATURES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.randn(8, 128, FEATURES)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(STEPS):
            batch = batches[step % len(batches)]
            loss = (model(batch) - batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not HEALTHY or step == STEPS - 1:
                save(folder, model, optimizer)


if __name__ == "__main__":
    main()
