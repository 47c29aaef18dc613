"""Backward recomputes activations.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch.utils.checkpoint import checkpoint


def main() -> None:
    start()
    x = torch.randn(8, 128, 512)
    parts = torch.nn.ModuleList(mlp(512, 1024, 512) for _ in range(4))
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.01)
    for step in range(40):
        h = x[step % 8].requires_grad_()
        for part in parts:
            h = h + checkpoint(part, h, use_reentrant=False)
        update(h.square().mean(), optimizer)


if __name__ == "__main__":
    main()
