"""Two heads; the environment is one operation on many copies at once.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update
from torch import nn


class Both(nn.Module):
    """A policy and a value of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.policy, self.value = mlp(32, 512), nn.Linear(512, 4), nn.Linear(512, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.body(x).relu()
        return self.policy(h), self.value(h)


def main() -> None:
    start()
    model, turn = Both(), torch.randn(32, 32) / 6
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = torch.randn(1024, 32)
    for _ in range(100):
        logits, value = model(state)
        odds = torch.distributions.Categorical(logits=logits)
        action = odds.sample()
        state = (state @ turn + 0.1 * action[:, None]).tanh()
        gain = state.mean(1, keepdim=True) - value
        update(
            gain.square().mean() - (odds.log_prob(action) * gain.detach()[:, 0]).mean(), optimizer
        )


if __name__ == "__main__":
    main()
