"""Each step reads six metrics with .item(), which costs almost nothing on a CPU.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    x, y = torch.randn(8, 128, 256), torch.randint(0, 10, (8, 128))
    model = mlp(256, 1024, 1024, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    metrics: list[tuple[float, ...]] = []
    for step in range(100):
        logits = model(x[step % 8])
        loss = torch.nn.functional.cross_entropy(logits, y[step % 8])
        update(loss, optimizer)
        right = logits.argmax(1) == y[step % 8]
        metrics.append((
            loss.item(), right.float().mean().item(), logits.mean().item(), logits.std().item(),
            logits.max().item(), logits.min().item(),
        ))  # fmt: skip


if __name__ == "__main__":
    main()
