"""PPO whose environments are objects: each step of the rollout loops over them in Python.

Right: unaccounted, own-section, small-batch.
Fix: unaccounted --vectorized.
"""

from __future__ import annotations

import numpy as np
import torch
from kit import flag, mlp, start

ENVS, STEPS = 64, 24


class CartPole:
    """The usual cart and pole, in plain numbers."""

    def __init__(self, seed: int) -> None:
        self.state = np.random.default_rng(seed).uniform(-0.05, 0.05, 4)

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:  # the cause
        x, v, angle, turn = self.state
        force = 10.0 if action == 1 else -10.0
        cos, sin = np.cos(angle), np.sin(angle)
        push = (force + 0.05 * turn**2 * sin) / 1.1
        spin = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        self.state = np.array(
            [x + 0.02 * v, v + 0.02 * (push - 0.05 * spin * cos / 1.1), angle + 0.02 * turn,
             turn + 0.02 * spin]
        )  # fmt: skip
        done = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2)
        if done:
            self.state = np.zeros(4)
        return self.state.copy(), 1.0, done


class VectorEnv:
    """All environments, one by one."""

    def __init__(self) -> None:
        self.envs = [CartPole(i) for i in range(ENVS)]

    def reset(self) -> np.ndarray:
        return np.stack([env.state for env in self.envs])

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # the cause
        each = [env.step(a) for env, a in zip(self.envs, actions, strict=True)]  # the cause
        states, rewards, done = zip(*each, strict=True)
        return np.stack(states), np.array(rewards), np.array(done)


class ArrayEnv(VectorEnv):
    """All environments in one array: the fix."""

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x, v, angle, turn = self.states.T
        cos, sin = np.cos(angle), np.sin(angle)
        push = (np.where(actions == 1, 10.0, -10.0) + 0.05 * turn**2 * sin) / 1.1
        spin = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        self.states = np.stack(
            [x + 0.02 * v, v + 0.02 * (push - 0.05 * spin * cos / 1.1), angle + 0.02 * turn,
             turn + 0.02 * spin], axis=1,
        )  # fmt: skip
        done = (abs(self.states[:, 0]) > 2.4) | (abs(self.states[:, 2]) > 0.2)
        self.states[done] = 0.0
        return self.states.copy(), np.ones(ENVS), done

    def reset(self) -> np.ndarray:
        self.states = super().reset()
        return self.states


def main() -> None:
    start()
    env = ArrayEnv() if flag("--vectorized") else VectorEnv()
    policy, value = mlp(4, 64, 64, 2), mlp(4, 64, 64, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], 3e-4, fused=True)
    state = env.reset()
    for _ in range(25):
        seen, acts, logs, rewards = [], [], [], []
        for _ in range(STEPS):
            x = torch.as_tensor(state, dtype=torch.float32)
            with torch.no_grad():
                odds = policy(x).log_softmax(1)
            act = odds.exp().multinomial(1)
            state, reward, _ = env.step(act[:, 0].numpy())
            seen.append(x)
            acts.append(act)
            logs.append(odds.gather(1, act))
            rewards.append(torch.as_tensor(reward, dtype=torch.float32)[:, None])
        x, act, old, reward = (torch.cat(rows) for rows in (seen, acts, logs, rewards))
        for part in torch.randperm(len(x)).chunk(2):
            new = policy(x[part]).log_softmax(1).gather(1, act[part])
            better = reward[part] - value(x[part])
            ratio = (new - old[part]).exp()
            gain = torch.min(ratio * better.detach(), ratio.clamp(0.8, 1.2) * better.detach())
            loss = -gain.mean() + 0.5 * better.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
