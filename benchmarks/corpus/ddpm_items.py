"""A diffusion model that logs the loss of each noise level with .item().

Right: sync-item, unaccounted.
Fix: sync-item --whole.
"""

from __future__ import annotations

import torch
from kit import flag, mlp, start
from torch import nn

LEVELS, WIDTH, BATCH = 200, 64, 512


class Denoiser(nn.Module):
    """Noise of a point, given its noise level."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.net = nn.Embedding(LEVELS, 32), mlp(WIDTH + 32, 256, 256, WIDTH)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat((x, self.time(t)), dim=1))


class LossPerLevel:
    """Sum and number of the losses of each level."""

    def __init__(self) -> None:
        self.sums, self.counts = [0.0] * LEVELS, [0] * LEVELS
        self.tensors = torch.zeros(2, LEVELS)

    def add(self, levels: torch.Tensor, losses: torch.Tensor) -> None:  # the cause
        if flag("--whole"):
            self.tensors[0].index_add_(0, levels, losses)
            self.tensors[1].index_add_(0, levels, torch.ones_like(losses))
            return
        for level, loss in zip(levels, losses, strict=True):
            self.sums[level.item()] += loss.item()  # the cause
            self.counts[level.item()] += 1  # the cause


def main() -> None:
    start()
    data = torch.randn(4096, WIDTH)
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, LEVELS), dim=0)
    model, log = Denoiser(), LossPerLevel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(150):
        x = data[torch.randint(len(data), (BATCH,))]
        t, noise = torch.randint(LEVELS, (BATCH,)), torch.randn(BATCH, WIDTH)
        a = alphas[t][:, None]
        each = (model(a.sqrt() * x + (1 - a).sqrt() * noise, t) - noise).square().mean(1)
        optimizer.zero_grad()
        each.mean().backward()
        optimizer.step()
        log.add(t, each.detach())


if __name__ == "__main__":
    main()
