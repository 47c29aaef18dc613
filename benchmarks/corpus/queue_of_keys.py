"""Momentum contrast: one encoder follows another, and its outputs form a queue.

Right: none.
"""

from __future__ import annotations

import copy

import torch
from kit import mlp, start, update
from torch import nn


def main() -> None:
    start()
    x = torch.randn(4, 256, 256)
    query = mlp(256, 768, 128)
    key = copy.deepcopy(query).requires_grad_(False)
    queue, at = nn.functional.normalize(torch.randn(2048, 128), dim=1), 0
    optimizer = torch.optim.SGD(query.parameters(), lr=0.03, momentum=0.9)
    for step in range(80):
        batch = x[step % 4]
        q = nn.functional.normalize(query(batch + 0.1 * torch.randn_like(batch)), dim=1)
        with torch.no_grad():
            for old, new in zip(key.parameters(), query.parameters(), strict=True):
                old.lerp_(new, 0.01)
            k = nn.functional.normalize(key(batch), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.07
        loss = nn.functional.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        update(loss, optimizer)
        queue[at : at + len(k)] = k
        at = (at + len(k)) % len(queue)


if __name__ == "__main__":
    main()
