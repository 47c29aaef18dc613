"""Proximal policy optimisation with torch.distributions, on environments made of tensors.

Right: argument-checks, small-batch, unaccounted.
Fix: argument-checks --fixed.
"""

from __future__ import annotations

import torch
from kit import flag, mlp, start
from torch import nn
from torch.distributions import Categorical, Distribution


class Pendulums:
    """Several pendulums; a step moves all of them with few operations."""

    def __init__(self, count: int) -> None:
        self.state = torch.zeros(count, 4).uniform_(-0.1, 0.1)

    def step(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angle = self.state[:, 2]
        self.state[:, 3] += 0.1 * angle - 0.05 * (action.float() - 0.5)
        self.state[:, 2] += 0.02 * self.state[:, 3]
        self.state.clamp_(-1.0, 1.0)
        return self.state.clone(), 1.0 - angle.abs()


class Agent(nn.Module):
    """A policy and an estimate of the value."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = mlp(4, 64, 2), mlp(4, 64, 1)

    def act(
        self, state: torch.Tensor, action: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        odds = Categorical(logits=self.policy(state))
        if action is None:
            action = odds.sample()
        return action, odds.log_prob(action), odds.entropy(), self.value(state)


def main() -> None:
    start()
    if flag("--fixed"):
        Distribution.set_default_validate_args(False)
    agent, world = Agent(), Pendulums(8)
    optimizer = torch.optim.SGD(agent.parameters(), lr=1e-3)
    state = world.state.clone()
    for _ in range(60):
        rows = []
        with torch.no_grad():
            for _ in range(32):
                action, log_prob, _, value = agent.act(state)
                following, reward = world.step(action)
                rows.append((state, action, log_prob, value.squeeze(-1), reward))
                state = following
        states, actions, old, values, rewards = (torch.cat(x) for x in zip(*rows, strict=True))
        better = rewards - values
        for part in torch.randperm(len(states)).split(128):
            _, new, entropy, value = agent.act(states[part], actions[part])
            ratio = (new - old[part]).exp()
            gain = torch.min(ratio * better[part], ratio.clamp(0.8, 1.2) * better[part])
            loss = -gain.mean() + (value.squeeze(-1) - rewards[part]).pow(2).mean()
            loss = loss - 0.01 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
