"""Distillation without no_grad: gradients flow through the teacher in every step.

Right: untrained-gradients.
Fix: untrained-gradients --frozen.
"""

from __future__ import annotations

import torch
from kit import flag, mlp, start
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Distiller(nn.Module):
    """Student and teacher in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.student = mlp(128, 1024, 1024, 10), mlp(128, 256, 10)
        if flag("--frozen"):
            self.teacher.requires_grad_(False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        own, told = self.student(x), self.teacher(x)
        soft = nn.functional.kl_div(
            (own / 2).log_softmax(1), (told / 2).log_softmax(1), reduction="batchmean",
            log_target=True,
        )  # fmt: skip
        return soft + nn.functional.cross_entropy(own, y)


def main() -> None:
    start()
    model = Distiller()
    optimizer = torch.optim.Adam(model.student.parameters(), lr=1e-3, fused=True)
    data = TensorDataset(torch.randn(6400, 128), torch.randint(0, 10, (6400,)))
    for x, y in DataLoader(data, batch_size=64, shuffle=True):
        loss = model(x, y)
        model.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
