"""Denoising diffusion: noise at random times, a small convolutional network, an average.

Right: none.
"""

from __future__ import annotations

import copy

import torch
from kit import start, update
from torch import nn


class Denoiser(nn.Module):
    """Convolutions down and up, with the time added in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.down = nn.Conv2d(32, 64, 4, stride=2, padding=1)
        self.middle = nn.Conv2d(64, 64, 3, padding=1)
        self.up = nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1)
        self.last = nn.Conv2d(64, 3, 3, padding=1)
        self.time = nn.Embedding(100, 64)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        wide = torch.relu(self.first(x))
        deep = torch.relu(self.down(wide)) + self.time(t)[:, :, None, None]
        deep = torch.relu(self.middle(deep))
        return self.last(torch.cat([wide, torch.relu(self.up(deep))], 1))


def main() -> None:
    start()
    images = torch.rand(4, 16, 3, 32, 32)
    kept = torch.linspace(0.99, 0.05, 100)
    model = Denoiser()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    for step in range(60):
        x = images[step % 4]
        t = torch.randint(0, 100, (len(x),))
        share = kept[t][:, None, None, None]
        noise = torch.randn_like(x)
        loss = (model(share.sqrt() * x + (1 - share).sqrt() * noise, t) - noise).square().mean()
        update(loss, optimizer)
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.01)


if __name__ == "__main__":
    main()
