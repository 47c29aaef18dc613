"""A GRUCell called for each of 100 positions; nn.GRU has the loop in C.

Right: tensor-loop, small-batch.
Fix: tensor-loop --gru.
"""

from __future__ import annotations

import torch
from kit import flag, start, update
from torch import nn

LENGTH, WIDTH = 100, 48


class Tagger(nn.Module):
    """Predicts a tag for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(500, WIDTH), nn.Linear(WIDTH, 12)
        self.cell = nn.GRU(WIDTH, WIDTH, batch_first=True) if flag("--gru") else None
        self.cell = self.cell or nn.GRUCell(WIDTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # the cause
        x = self.embed(tokens)
        if flag("--gru"):
            return self.out(self.cell(x)[0])
        hidden, states = torch.zeros(len(tokens), WIDTH), []
        for t in range(LENGTH):
            hidden = self.cell(x[:, t], hidden)  # the cause
            states.append(hidden)
        return self.out(torch.stack(states, dim=1))


def main() -> None:
    start()
    tokens, tags = torch.randint(0, 500, (4, 16, LENGTH)), torch.randint(0, 12, (4, 16, LENGTH))
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for step in range(50):
        scores = model(tokens[step % 4])
        update(
            nn.functional.cross_entropy(scores.flatten(0, 1), tags[step % 4].flatten()), optimizer
        )


if __name__ == "__main__":
    main()
