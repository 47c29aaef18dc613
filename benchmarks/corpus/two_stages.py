"""Pretraining on tensors, then finetuning on texts that are encoded letter by letter.

Right: data-loading.
Fix: data-loading --once.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from kit import flag, mlp, start, update
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


def encode(text: str) -> torch.Tensor:  # the cause
    """Counts of pairs of letters."""
    counts = torch.zeros(128)
    for a, b in pairwise(text):
        counts[(ord(a) * 31 + ord(b)) % 128] += 1  # the cause
    return counts


class Texts(Dataset):
    """Short texts with labels."""

    def __init__(self, count: int) -> None:
        self.texts = ["".join(chr(97 + (i * k) % 26) for k in range(60)) for i in range(count)]
        self.ready = [encode(text) for text in self.texts] if flag("--once") else None

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.ready[i] if self.ready else encode(self.texts[i]), i % 4  # the cause


def pretrain(body: nn.Module) -> None:
    loader = DataLoader(TensorDataset(torch.randn(12_800, 128)), batch_size=128)
    head = nn.Linear(256, 128)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-3, fused=True)
    for (x,) in loader:
        noisy = x * (torch.rand_like(x) > 0.15)
        update((head(body(noisy)) - x).square().mean(), optimizer)


def finetune(body: nn.Module) -> None:
    head = nn.Linear(256, 4)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.01)
    loader = DataLoader(Texts(640), batch_size=32, shuffle=True)
    for _ in range(3):
        for x, y in loader:
            update(nn.functional.cross_entropy(head(body(x)), y), optimizer)


def main() -> None:
    start()
    body = mlp(128, 512, 256)
    pretrain(body)
    finetune(body)


if __name__ == "__main__":
    main()
