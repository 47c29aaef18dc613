"""Contrastive learning: two encoders, a large batch, a matrix of similarities.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch import nn


def main() -> None:
    start()
    images, texts = torch.randn(4, 512, 256), torch.randn(4, 512, 128)
    left, right = mlp(256, 512, 128), mlp(128, 512, 128)
    scale = nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.AdamW(
        [*left.parameters(), *right.parameters(), scale], lr=1e-3, fused=True
    )
    target = torch.arange(512)
    for step in range(60):
        a = nn.functional.normalize(left(images[step % 4]), dim=1)
        b = nn.functional.normalize(right(texts[step % 4]), dim=1)
        logits = scale.exp() * a @ b.T
        loss = nn.functional.cross_entropy(logits, target)
        loss = (loss + nn.functional.cross_entropy(logits.T, target)) / 2
        update(loss, optimizer)


if __name__ == "__main__":
    main()
