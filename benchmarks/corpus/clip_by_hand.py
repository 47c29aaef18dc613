"""Clips gradients in a loop over parameters that reads each one's norm and looks for NaN.

Right: unaccounted, sync-item, small-batch.
Fix: unaccounted --foreach.
"""

from __future__ import annotations

import torch
from kit import flag, start
from torch import nn


def clip_gradients(parameters: list[nn.Parameter], limit: float) -> float:  # the cause
    total = 0.0
    for parameter in parameters:
        if parameter.grad.isnan().any() or parameter.grad.isinf().any():  # the cause
            raise ValueError("a gradient is not finite")
        total += parameter.grad.pow(2).sum().item()  # the cause
    norm = total**0.5
    for parameter in parameters:
        parameter.grad.mul_(min(1.0, limit / (norm + 1e-6)))  # the cause
    return norm


class Deep(nn.Module):
    """Forty narrow residual layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(96, 96) for _ in range(40))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x).tanh()
        return x


def main() -> None:
    start()
    x = torch.randn(8, 16, 96)
    model = Deep()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    for step in range(80):
        optimizer.zero_grad(set_to_none=True)
        model(x[step % 8]).square().mean().backward()
        if flag("--foreach"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        else:
            clip_gradients(list(model.parameters()), 1.0)  # the cause
        optimizer.step()


if __name__ == "__main__":
    main()
