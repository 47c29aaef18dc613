"""AdamW(foreach=False) on a transformer: thousands of small calls in each update.

Right: optimizer-unfused.
Fix: optimizer-unfused --fused.
"""

from __future__ import annotations

import torch
from gpt import Gpt
from kit import flag, start


def groups(model: torch.nn.Module) -> list[dict[str, object]]:
    """Weight decay for matrices only."""
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


def main() -> None:
    start()
    model = Gpt(width=64, layers=8, vocabulary=64)
    how = {"fused": True} if flag("--fused") else {"foreach": False}
    optimizer = torch.optim.AdamW(groups(model), lr=6e-4, betas=(0.9, 0.95), **how)
    text = torch.randint(0, 64, (10_000,))
    for _ in range(80):
        at = torch.randint(0, 9000, (4, 1)) + torch.arange(33)
        loss = model(text[at][:, :-1], text[at][:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
