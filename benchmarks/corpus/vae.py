"""A variational autoencoder whose loss has two parts; fused Adam.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch import nn


class Vae(nn.Module):
    """Encoder, sample, decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = mlp(784, 400, 40), mlp(20, 400, 784)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mu, log_var = self.encode(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * (0.5 * log_var).exp()
        return torch.sigmoid(self.decode(z)), mu, log_var


def main() -> None:
    start()
    batches = torch.rand(16, 256, 784)
    model = Vae()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for step in range(150):
        x = batches[step % 16]
        y, mu, log_var = model(x)
        loss = nn.functional.binary_cross_entropy(y, x, reduction="sum")
        loss = loss - 0.5 * (1 + log_var - mu.pow(2) - log_var.exp()).sum()
        update(loss, optimizer)


if __name__ == "__main__":
    main()
