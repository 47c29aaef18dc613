"""The program zeroes gradients and updates parameters by hand, without an optimizer's class.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    data = TensorDataset(torch.randn(2048, 256))
    model = mlp(256, 1024, 1024, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        for (x,) in DataLoader(data, batch_size=128, shuffle=True):
            loss = (model(x) - x).square().mean()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.grad.clamp_(-1.0, 1.0)  # type: ignore[union-attr]
            optimizer.step()
            for parameter in model.parameters():
                parameter.grad.zero_()  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
