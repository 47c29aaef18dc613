"""Shows where a plain PyTorch loop spends its time, without changing the loop.

python examples/pytorch_loop.py
"""

from __future__ import annotations

import torch
from fastprof.integrations import torch_loop
from torch.utils.data import DataLoader, TensorDataset


def train() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = torch.nn.MSELoss()
    data = TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    for _ in range(3):
        model.train()
        for inputs, targets in DataLoader(data, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for inputs, targets in DataLoader(data, batch_size=64):
                criterion(model(inputs), targets)


if __name__ == "__main__":
    with torch_loop.attach() as loop:
        train()
    print(loop.report())
