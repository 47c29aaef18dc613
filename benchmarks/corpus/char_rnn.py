"""A recurrent network over characters that writes a sample now and then.

Right: none.
"""

from __future__ import annotations

import torch
from kit import start, update
from torch import nn


class Writer(nn.Module):
    """Embedding, GRU, characters."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(64, 64), nn.GRU(64, 256, batch_first=True)
        self.head = nn.Linear(256, 64)

    def forward(
        self, x: torch.Tensor, state: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, state = self.rnn(self.embed(x), state)
        return self.head(out), state


@torch.no_grad()
def sample(model: Writer, length: int) -> list[int]:
    text, state = torch.zeros(1, 1, dtype=torch.long), None
    written = []
    for _ in range(length):
        logits, state = model(text, state)
        text = torch.multinomial(logits[0].softmax(1), 1)
        written.append(int(text))
    return written


def main() -> None:
    start()
    text = torch.randint(0, 64, (20_000,))
    model = Writer()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step in range(60):
        begins = torch.randint(0, len(text) - 33, (32,))
        window = torch.stack([text[i : i + 33] for i in begins])
        logits, _ = model(window[:, :-1])
        update(
            nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten()), optimizer
        )
        if step % 30 == 29:
            sample(model, 20)


if __name__ == "__main__":
    main()
