"""The dataset parses text anew for every sample, in the training process.

    fastprof run examples/problems/slow_dataset.py            # the problem
    fastprof run examples/problems/slow_dataset.py --healthy  # parsed once, when it is loaded

Rule: data-loading.
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

HEALTHY = "--healthy" in sys.argv
FEATURES = 256


class Lines(Dataset):
    """Samples as lines of text, as in a CSV file."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.tensor([float(word) for word in self.lines[i].split(",")])


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    table = torch.randn(320, FEATURES).tolist()
    lines = [",".join(f"{value:.6f}" for value in row) for row in table]
    data = Lines(lines)
    if HEALTHY:
        data = TensorDataset(torch.stack([data[i] for i in range(len(data))]))
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, FEATURES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(18):
        for batch in loader:
            x = batch[0] if HEALTHY else batch
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
