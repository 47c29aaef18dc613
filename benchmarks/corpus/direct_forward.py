"""Layers with losses of their own, whose ``forward`` the program calls itself: no hook sees it.

Right: none.
"""

from __future__ import annotations

import torch
from kit import start
from torch import nn


class Layer(nn.Linear):
    """A layer that trains alone, on whether its output is large."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x / (x.norm(2, 1, keepdim=True) + 1e-4)
        return torch.relu(torch.mm(x, self.weight.T) + self.bias)

    def learn(self, good: torch.Tensor, bad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        large = self.forward(good).square().mean(1) - 2
        small = 2 - self.forward(bad).square().mean(1)
        loss = torch.log1p(torch.exp(torch.cat([-large, -small]))).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.forward(good).detach(), self.forward(bad).detach()


def main() -> None:
    start()
    layers = [Layer(512, 512), Layer(512, 512)]
    good, bad = torch.randn(8, 256, 512), torch.randn(8, 256, 512)
    for step in range(100):
        x, y = good[step % 8], bad[step % 8]
        for layer in layers:
            x, y = layer.learn(x, y)


if __name__ == "__main__":
    main()
