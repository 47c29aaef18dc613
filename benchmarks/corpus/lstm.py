"""A recurrent network in one call for the whole sequence.

Right: none.
"""

from __future__ import annotations

import torch
from kit import start, update
from torch import nn


class Tagger(nn.Module):
    """A label for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(1000, 64), nn.LSTM(64, 128, batch_first=True)
        self.head = nn.Linear(128, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(x))[0])


def main() -> None:
    start()
    xs, ys = torch.randint(0, 1000, (8, 32, 40)), torch.randint(0, 20, (8, 32, 40))
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(60):
        logits = model(xs[step % 8])
        update(nn.functional.cross_entropy(logits.flatten(0, 1), ys[step % 8].flatten()), optimizer)


if __name__ == "__main__":
    main()
