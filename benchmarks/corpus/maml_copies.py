"""MAML that copies the network for each task and adapts it on a few samples.

Right: unaccounted, small-batch.
"""

from __future__ import annotations

import copy

import torch
from kit import mlp, start


def adapted(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.nn.Module:  # the cause
    fast = copy.deepcopy(net)  # the cause
    inner = torch.optim.SGD(fast.parameters(), lr=0.01)
    for _ in range(3):
        inner.zero_grad()
        (fast(x) - y).square().mean().backward()
        inner.step()
    return fast


def main() -> None:
    start()
    net = mlp(1, 40, 40, 40, 40, 1)
    meta = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    for _ in range(60):
        meta.zero_grad()
        for _ in range(4):
            amplitude, phase = 5 * torch.rand(1), 3 * torch.rand(1)
            x = 10 * torch.rand(20, 1) - 5
            y = amplitude * (x + phase).sin()
            fast = adapted(net, x[:10], y[:10])  # the cause
            loss = (fast(x[10:]) - y[10:]).square().mean()
            grads = torch.autograd.grad(loss, list(fast.parameters()))
            for slow, grad in zip(net.parameters(), grads, strict=True):
                slow.grad = grad if slow.grad is None else slow.grad + grad
        meta.step()


if __name__ == "__main__":
    main()
