"""Text classification: sentences of different length, padded per batch.

Right: none.
"""

from __future__ import annotations

import torch
from kit import start, update
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


class Classifier(nn.Module):
    """Embedding, one attention layer, mean over all but padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 96, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(96, 4, 256, batch_first=True)
        self.head = nn.Linear(96, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        padding = tokens == 0
        hidden = self.layer(self.embed(tokens), src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(2)
        return self.head((hidden * kept).sum(1) / kept.sum(1))


def collate(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    texts, labels = zip(*samples, strict=True)
    return pad_sequence(list(texts), batch_first=True), torch.tensor(labels)


def main() -> None:
    start()
    lengths = torch.randint(30, 50, (640,)).tolist()
    samples = [(torch.randint(1, 1000, (n,)), n % 4) for n in lengths]
    loader = DataLoader(samples, batch_size=32, shuffle=True, collate_fn=collate)  # type: ignore[arg-type]
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(4):
        for tokens, labels in loader:
            update(nn.functional.cross_entropy(model(tokens), labels), optimizer)


if __name__ == "__main__":
    main()
