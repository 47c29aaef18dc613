"""Two samples per batch: every step makes the same few calls, and computes almost nothing.

    fastprof run examples/problems/tiny_batches.py            # the problem
    fastprof run examples/problems/tiny_batches.py --healthy  # 512 samples per batch

Rule: small-batch.
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader, Dataset

HEALTHY = "--healthy" in sys.argv
FEATURES, SAMPLES = 128, 512 * 5


class Samples(Dataset):
    """Samples in memory; a loader takes them batch by batch."""

    def __init__(self) -> None:
        self.samples = torch.randn(SAMPLES, FEATURES)

    def __len__(self) -> int:
        return SAMPLES

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        return self.samples[indices]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    batch_size = 512 if HEALTHY else 2
    loader = DataLoader(Samples(), batch_size, collate_fn=lambda batch: batch)
    model = torch.nn.Sequential()
    for _ in range(3):
        model.append(torch.nn.Linear(FEATURES, FEATURES)).append(torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(24 if HEALTHY else 1):
        for batch in loader:
            loss = (model(batch) - batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
