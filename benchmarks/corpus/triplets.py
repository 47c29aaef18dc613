"""Metric learning; a loop over pairs in Python looks for the triplets of each batch.

Right: unaccounted, sync-item.
Fix: unaccounted --matrix.
"""

from __future__ import annotations

import torch
from kit import flag, mlp, start, update
from torch import nn


def mine(tensor: torch.Tensor) -> torch.Tensor:  # the cause
    """One positive and one negative for each anchor, by trial."""
    found, labels = [], tensor.tolist()
    for anchor, label in enumerate(labels):
        same = [i for i, other in enumerate(labels) if other == label and i != anchor]
        others = [i for i, other in enumerate(labels) if other != label]
        if same and others:
            found.append((anchor, same[anchor % len(same)], others[anchor % len(others)]))
    return torch.tensor(found)


def mine_matrix(labels: torch.Tensor) -> torch.Tensor:
    """The same choice with a matrix of equal labels."""
    same = labels[:, None] == labels[None, :]
    own = torch.eye(len(labels), dtype=torch.bool)
    positive = (same & ~own).float().argmax(1)
    return torch.stack((torch.arange(len(labels)), positive, (~same).float().argmax(1)), dim=1)


def main() -> None:
    start()
    xs, labels = torch.randn(8, 256, 64), torch.randint(0, 16, (8, 256))
    model = mlp(64, 512, 512, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(120):
        y = labels[step % 8]
        triplets = mine_matrix(y) if flag("--matrix") else mine(y)  # the cause
        z = nn.functional.normalize(model(xs[step % 8]), dim=1)
        a, p, n = (z[i] for i in triplets.unbind(1))
        update(nn.functional.triplet_margin_loss(a, p, n, margin=0.2), optimizer)


if __name__ == "__main__":
    main()
