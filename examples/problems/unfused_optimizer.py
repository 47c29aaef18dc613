"""AdamW updates many small parameters one after another, in a loop in Python.

    fastprof run examples/problems/unfused_optimizer.py            # the problem
    fastprof run examples/problems/unfused_optimizer.py --healthy  # one call for all of them

Rule: optimizer-unfused.
"""

from __future__ import annotations

import sys

import torch

HEALTHY = "--healthy" in sys.argv
FEATURES, LAYERS = 64, 24


class Block(torch.nn.Module):
    """A small layer with its norm: four parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(FEATURES)
        self.linear = torch.nn.Linear(FEATURES, FEATURES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.norm(x)).relu()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=HEALTHY)
    batches = torch.randn(8, 512, FEATURES)
    for step in range(60):
        batch = batches[step % len(batches)]
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
