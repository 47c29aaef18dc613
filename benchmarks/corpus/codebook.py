"""An autoencoder with a codebook (vector quantization) and a straight-through gradient.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch import nn


class Quantized(nn.Module):
    """Encoder, nearest code, decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = mlp(256, 768, 64), mlp(64, 768, 256)
        self.codes = nn.Parameter(torch.randn(256, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.encode(x)
        code = self.codes[torch.cdist(z, self.codes).argmin(1)]
        loss = (z.detach() - code).square().mean() + 0.25 * (z - code.detach()).square().mean()
        rebuilt = self.decode(z + (code - z).detach())
        return loss + (rebuilt - x).square().mean()


def main() -> None:
    start()
    x = torch.randn(8, 256, 256)
    model = Quantized()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    for step in range(100):
        update(model(x[step % 8]), optimizer)


if __name__ == "__main__":
    main()
