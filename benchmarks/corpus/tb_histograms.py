"""TensorBoard gets a histogram of each parameter and gradient in every step.

Right: logging-share, unaccounted.
Fix: logging-share --every 100.
"""

from __future__ import annotations

import tempfile

import torch
from kit import mlp, number, start, update
from torch.utils.tensorboard import SummaryWriter


def log(writer: SummaryWriter, model: torch.nn.Module, step: int) -> None:  # the cause
    for name, parameter in model.named_parameters():
        writer.add_histogram(name, parameter, step)  # the cause
        writer.add_histogram(f"{name}.grad", parameter.grad, step)  # the cause


def main() -> None:
    start()
    x, y = torch.randn(8, 64, 64), torch.randint(0, 10, (8, 64))
    model = mlp(64, 128, 128, 128, 128, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        for step in range(100):
            loss = torch.nn.functional.cross_entropy(model(x[step % 8]), y[step % 8])
            update(loss, optimizer)
            writer.add_scalar("loss", loss.detach(), step)
            if step % number("--every", 1) == 0:
                log(writer, model, step)  # the cause


if __name__ == "__main__":
    main()
