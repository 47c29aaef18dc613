"""Policy gradient: an environment in Python between the updates.

Right: argument-checks, unaccounted, small-batch.
"""

from __future__ import annotations

import math

import torch
from kit import mlp, start, update


class Pole:
    """A pole on a cart, as in gym."""

    def __init__(self) -> None:
        self.state = [0.0, 0.0, 0.05, 0.0]

    def step(self, action: int) -> tuple[list[float], bool]:
        x, v, angle, spin = self.state
        for _ in range(40):
            force = 10.0 if action else -10.0
            push = (force + 0.05 * spin**2 * math.sin(angle)) / 1.1
            turn = (9.8 * math.sin(angle) - math.cos(angle) * push) / 0.65
            x, v = x + 0.0005 * v, v + 0.0005 * push
            angle, spin = angle + 0.0005 * spin, spin + 0.0005 * turn
        self.state = [x, v, angle, spin]
        return self.state, abs(angle) > 0.8


def main() -> None:
    start()
    policy = mlp(4, 64, 2)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    for _ in range(60):
        pole, chosen = Pole(), []
        for _ in range(30):
            odds = torch.distributions.Categorical(logits=policy(torch.tensor(pole.state)))
            action = odds.sample()
            chosen.append(odds.log_prob(action))
            _, over = pole.step(int(action))
            if over:
                break
        update(-torch.stack(chosen).sum(), optimizer)


if __name__ == "__main__":
    main()
