"""The demo's network with PyTorch: a small transformer that learns to add.

It reads lines such as ``7+5=12;`` character by character and predicts the next one.  The summands
are unpredictable, the sum is not: the loss falls from ln(13) to less than half.
"""

import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from fastprof.cli.demo_data import IndexedLabels, Labels, SearchedLabels, make_names

_ALPHABET = "0123456789+=;"
_LENGTH = 48
_WIDTH = 64
_BATCH_SIZE = 16
#: So many that searching a name takes as long as the rest of a step.
_SAMPLES = 100_000


class Additions(Dataset[tuple[Tensor, Tensor]]):
    """Sequences of additions, generated on demand."""

    def __init__(self, *, fixed: bool) -> None:
        self._names = make_names(_SAMPLES)
        seeds = range(len(self._names))
        self._labels: Labels = (IndexedLabels if fixed else SearchedLabels)(self._names, seeds)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        source = random.Random(self._labels.label(self._names[index]))
        text = ""
        while len(text) <= _LENGTH:
            a, b = source.randrange(10), source.randrange(10)
            text += f"{a}+{b}={a + b};"
        tokens = torch.tensor([_ALPHABET.index(c) for c in text[: _LENGTH + 1]])
        return tokens[:-1], tokens[1:]


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(_WIDTH)
        self.attention = nn.MultiheadAttention(_WIDTH, 4, batch_first=True)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(_WIDTH),
            nn.Linear(_WIDTH, 4 * _WIDTH),
            nn.GELU(),
            nn.Linear(4 * _WIDTH, _WIDTH),
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        normal = self.before_attention(x)
        attended, _ = self.attention(normal, normal, normal, attn_mask=mask, need_weights=False)
        x = x + attended
        return x + self.feed_forward(x)


class Transformer(nn.Module):
    """Embeddings, two blocks and a prediction per position."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(_ALPHABET), _WIDTH)
        self.positions = nn.Parameter(torch.randn(_LENGTH, _WIDTH) * 0.1)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(_WIDTH, len(_ALPHABET))
        future = torch.triu(torch.ones(_LENGTH, _LENGTH, dtype=torch.bool), diagonal=1)
        self.register_buffer("mask", future)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.characters(tokens) + self.positions
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(x)


class TorchTask:
    """The demo's network with PyTorch."""

    description = "a small transformer on additions of digits, with PyTorch on the CPU"

    def __init__(self, *, fixed: bool = True) -> None:
        torch.manual_seed(0)
        # The layers are so small that more threads would only wait for each other.
        torch.set_num_threads(1)
        self.batches: Any = DataLoader(Additions(fixed=fixed), batch_size=_BATCH_SIZE, shuffle=True)
        self._model = Transformer()
        self._criterion = nn.CrossEntropyLoss()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=3e-3)

    def loss(self, batch: Any) -> Tensor:
        inputs, targets = batch
        logits = self._model(inputs)
        return self._criterion(logits.flatten(0, 1), targets.flatten())

    def update(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()
