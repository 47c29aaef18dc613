"""Three tasks with a common trunk; learned uncertainties weight their losses.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    data = TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)), torch.randn(4096))
    trunk, kind, value, again = mlp(256, 1024, 512), mlp(512, 10), mlp(512, 1), mlp(512, 256)
    weights = nn.Parameter(torch.zeros(3))
    parts = [trunk, kind, value, again]
    optimizer = torch.optim.AdamW(
        [*(p for m in parts for p in m.parameters()), weights], fused=True
    )
    for _ in range(3):
        for x, label, number in DataLoader(data, batch_size=128, shuffle=True):
            hidden = trunk(x).relu()
            losses = torch.stack([
                nn.functional.cross_entropy(kind(hidden), label),
                (value(hidden).squeeze(1) - number).square().mean(),
                (again(hidden) - x).square().mean(),
            ])  # fmt: skip
            update((losses * (-weights).exp() + weights).sum(), optimizer)


if __name__ == "__main__":
    main()
