"""A variational autoencoder that writes a picture of its samples after each step.

Right: unaccounted, logging-share, sync-item.
Fix: unaccounted --every 50.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from kit import number, start
from torch import nn

SIDE = 16


class VAE(nn.Module):
    """Encoder, Gaussian code, decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(256, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.fc3, self.fc4 = nn.Linear(20, 400), nn.Linear(400, 256)

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return self.fc4(self.fc3(z).relu()).sigmoid()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        h = self.fc1(x).relu()
        mu, logvar = self.fc21(h), self.fc22(h)
        return self.decode(mu + torch.randn_like(mu) * (0.5 * logvar).exp()), mu, logvar


def save_image(picture: torch.Tensor, path: Path) -> None:  # the cause
    """Write a plain PGM, pixel by pixel."""
    lines = [f"P2 {SIDE} {SIDE} 255"]
    for row in picture.view(SIDE, SIDE):
        lines.append(" ".join(str(int(255 * pixel)) for pixel in row))  # the cause
    path.write_text("\n".join(lines))


def loss_function(
    out: torch.Tensor, x: torch.Tensor, mu: torch.Tensor, logvar: torch.Tensor
) -> torch.Tensor:
    bce = nn.functional.binary_cross_entropy(out, x, reduction="sum")
    return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


def main() -> None:
    start()
    x = torch.rand(8, 128, 256)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    train_loss = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for step in range(150):
            optimizer.zero_grad()
            out, mu, logvar = model(x[step % 8])
            loss = loss_function(out, x[step % 8], mu, logvar)
            loss.backward()
            train_loss += loss.item()
            optimizer.step()
            if step % number("--every", 1) == 0:
                with torch.no_grad():
                    sample = model.decode(torch.randn(1, 20))
                save_image(sample, Path(folder) / f"sample_{step}.pgm")  # the cause


if __name__ == "__main__":
    main()
