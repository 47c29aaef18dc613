"""The program's own optimizer, with a loop over parameters.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update


class Sign(torch.optim.Optimizer):
    """Steps of equal size."""

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad.sign(), alpha=group["lr"])


def main() -> None:
    start()
    x = torch.randn(8, 128, 256)
    model = mlp(256, 512, 512, 256)
    optimizer = Sign(model.parameters(), {"lr": 1e-4})
    for step in range(100):
        update((model(x[step % 8]) - x[step % 8]).square().mean(), optimizer)


if __name__ == "__main__":
    main()
