"""The loss is a loop over the samples of a batch, some small operations for each.

Right: tensor-loop, small-batch, unaccounted.
Fix: tensor-loop --whole.
"""

from __future__ import annotations

import torch
from kit import flag, mlp, start, update


def single(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    losses = []
    for row, label in zip(logits, target, strict=True):
        log_p = row - row.logsumexp(0)
        losses.append(-log_p[label] + 0.1 * row.square().mean())
    return torch.stack(losses).mean()


def whole(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    log_p = logits - logits.logsumexp(1, keepdim=True)
    chosen = log_p.gather(1, target[:, None])
    return (-chosen.squeeze(1) + 0.1 * logits.square().mean(1)).mean()


def main() -> None:
    start()
    x, y = torch.randn(8, 128, 64), torch.randint(0, 10, (8, 128))
    model = mlp(64, 128, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = whole if flag("--whole") else single
    for step in range(80):
        update(loss_of(model(x[step % 8]), y[step % 8]), optimizer)


if __name__ == "__main__":
    main()
