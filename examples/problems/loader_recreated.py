"""Every short epoch creates a new DataLoader, and with it new worker processes.

    fastprof run examples/problems/loader_recreated.py            # the problem
    fastprof run examples/problems/loader_recreated.py --healthy  # one loader, workers that stay

Rule: loader-recreated.
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader, Dataset

HEALTHY = "--healthy" in sys.argv
TOKENS = 384


class Tokens(Dataset):
    """Batches of neighbouring tokens; each item is the first one."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> int:
        return i


def make_loader() -> DataLoader:
    workers = {"num_workers": 1, "prefetch_factor": 8, "persistent_workers": HEALTHY}
    return DataLoader(Tokens(), batch_size=None, **workers)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    embedding = torch.randn(TOKENS + 24, 256)
    loader = make_loader()
    for _ in range(4):
        if not HEALTHY:
            loader = make_loader()
        for first in loader:
            x = embedding[first : first + TOKENS]
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
