"""Each step reads the loss of every sample out of its tensor with ``.item()``.

    fastprof run examples/problems/item_every_value.py            # the problem
    fastprof run examples/problems/item_every_value.py --healthy  # summed up in a tensor

Rule: sync-item.
"""

from __future__ import annotations

import sys

import torch

HEALTHY = "--healthy" in sys.argv
FEATURES, SAMPLES = 32, 2048


class Meter:
    """The mean loss of an epoch, sample by sample."""

    def __init__(self) -> None:
        self.total, self.count = torch.zeros(()), 0

    def update(self, losses: torch.Tensor) -> None:
        self.total += losses.sum() if HEALTHY else sum(value.item() for value in losses)
        self.count += len(losses)

    def mean(self) -> float:
        return self.total.item() / self.count


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, FEATURES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.randn(15, SAMPLES, FEATURES)
    for _ in range(8):
        meter = Meter()
        for batch in batches:
            losses = (model(batch) - batch).square().mean(1)
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            meter.update(losses.detach())
        print(f"loss {meter.mean():.4f}")


if __name__ == "__main__":
    main()
