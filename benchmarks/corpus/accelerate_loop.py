"""Accelerate with accumulated gradients.

Right: none.
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from kit import mlp, start
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    loader = DataLoader(TensorDataset(torch.randn(6400, 64)), batch_size=64, shuffle=True)
    model = mlp(64, 1024, 1024, 64)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(2):
        for (x,) in loader:
            with accelerator.accumulate(model):
                loss = (model(x) - x).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
