"""SGD with momentum and a schedule of its rate.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start


def main() -> None:
    start()
    x = torch.randn(8, 128, 512)
    model = mlp(512, 1024, 1024, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    for step in range(100):
        loss = (model(x[step % 8]) - x[step % 8]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
