"""Counts a confusion matrix and F1 scores of each training batch, element by element.

Right: unaccounted, sync-item.
Fix: unaccounted --whole.
"""

from __future__ import annotations

import torch
from kit import flag, mlp, start, update
from torch import nn

CLASSES = 10


def f1_scores(predicted: torch.Tensor, labels: torch.Tensor) -> list[float]:  # the cause
    """As a metrics library would in plain Python."""
    matrix = [[0] * CLASSES for _ in range(CLASSES)]
    for p, y in zip(predicted, labels, strict=True):
        matrix[int(y)][int(p)] += 1  # the cause
    scores = []
    for c in range(CLASSES):
        true = matrix[c][c]
        wrong = sum(matrix[c]) + sum(row[c] for row in matrix)
        scores.append(2 * true / wrong if wrong else 0.0)
    return scores


def f1_whole(predicted: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    matrix = torch.bincount(labels * CLASSES + predicted, minlength=CLASSES**2)
    matrix = matrix.view(CLASSES, CLASSES)
    return 2 * matrix.diagonal() / (matrix.sum(0) + matrix.sum(1)).clamp(min=1)


def main() -> None:
    start()
    x, y = torch.randn(8, 512, 64), torch.randint(0, CLASSES, (8, 512))
    model = mlp(64, 256, 256, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    history = []
    for step in range(120):
        scores = model(x[step % 8])
        update(nn.functional.cross_entropy(scores, y[step % 8]), optimizer)
        measure = f1_whole if flag("--whole") else f1_scores
        history.append(measure(scores.argmax(1), y[step % 8]))  # the cause


if __name__ == "__main__":
    main()
