"""A deep Q network; the replay buffer keeps tuples of Python numbers and converts them per step.

Right: unaccounted, data-loading, small-batch.
Fix: unaccounted --arrays.
"""

from __future__ import annotations

import copy
import random
from collections import deque

import torch
from kit import flag, mlp, start
from torch import nn

OBS, BATCH = 24, 128


class Replay:
    """A deque of (state, action, reward, next state), as Python lists."""

    def __init__(self) -> None:
        self.memory: deque[tuple[list[float], int, float, list[float]]] = deque(maxlen=5000)

    def push(self, state: list[float], action: int, reward: float, after: list[float]) -> None:
        self.memory.append((state, action, reward, after))

    def sample(self) -> tuple[torch.Tensor, ...]:  # the cause
        batch = random.sample(self.memory, BATCH)
        states, actions, rewards, after = zip(*batch, strict=True)
        return (
            torch.tensor(states), torch.tensor(actions), torch.tensor(rewards),  # the cause
            torch.tensor(after),
        )  # fmt: skip


class Arrays(Replay):
    """The same in tensors."""

    def __init__(self) -> None:
        self.at = 0
        self.states, self.after = torch.zeros(2, 5000, OBS)
        self.actions, self.rewards = torch.zeros(5000, dtype=torch.long), torch.zeros(5000)

    def push(self, state: list[float], action: int, reward: float, after: list[float]) -> None:
        i = self.at % 5000
        self.states[i], self.after[i] = torch.tensor(state), torch.tensor(after)
        self.actions[i], self.rewards[i] = action, reward
        self.at += 1

    def sample(self) -> tuple[torch.Tensor, ...]:
        i = torch.randint(min(self.at, 5000), (BATCH,))
        return self.states[i], self.actions[i], self.rewards[i], self.after[i]


def main() -> None:
    start()
    random.seed(0)
    memory = Arrays() if flag("--arrays") else Replay()
    online = mlp(OBS, 128, 128, 4)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3, fused=True)
    state = [random.random() for _ in range(OBS)]
    for step in range(700):
        action = random.randrange(4)
        after = [0.9 * x + 0.1 * random.random() for x in state]
        memory.push(state, action, sum(after) / OBS, after)
        state = after
        if step < BATCH:
            continue
        states, actions, rewards, following = memory.sample()
        with torch.no_grad():
            best = rewards + 0.99 * target(following).amax(1)
        chosen = online(states).gather(1, actions[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(chosen, best)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            target.load_state_dict(online.state_dict())


if __name__ == "__main__":
    main()
