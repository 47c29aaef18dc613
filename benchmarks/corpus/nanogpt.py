"""A language model in a bare loop: get_batch, an estimate of the loss now and then.

Right: none.
"""

from __future__ import annotations

import torch
from gpt import Gpt
from kit import start

TEXT = torch.randint(0, 256, (200_000,), generator=torch.Generator().manual_seed(0))


def get_batch(count: int = 8, length: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    at = torch.randint(len(TEXT) - length - 1, (count,))
    x = torch.stack([TEXT[i : i + length] for i in at])
    y = torch.stack([TEXT[i + 1 : i + 1 + length] for i in at])
    return x, y


@torch.no_grad()
def estimate_loss(model: Gpt) -> float:
    model.eval()
    loss = sum(model(*get_batch()).item() for _ in range(5)) / 5
    model.train()
    return loss


def main() -> None:
    start()
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    x, y = get_batch()
    for step in range(60):
        if step % 20 == 0:
            print(step, estimate_loss(model))
        loss = model(x, y)
        x, y = get_batch()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


if __name__ == "__main__":
    main()
