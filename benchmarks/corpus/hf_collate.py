"""Transformers' Trainer on a tiny BERT; the collate function tokenises its texts in every epoch.

Right: data-loading.
Fix: data-loading --once.
"""

from __future__ import annotations

import random
import tempfile

import torch
from kit import flag, start
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

LETTERS = "abcdefghij"
VOCAB = {a + b + c for a in LETTERS for b in LETTERS for c in "abcde"} | set(LETTERS)
IDS = {piece: i + 1 for i, piece in enumerate(sorted(VOCAB))}


def tokenize(text: str) -> list[int]:  # the cause
    """Greedy longest match, as word pieces are found."""
    ids = []
    for word in text.split():
        at = 0
        while at < len(word):
            end = len(word)
            while word[at:end] not in VOCAB:  # the cause
                end -= 1
            ids.append(IDS[word[at:end]])
            at = end
    return ids[:48]


class Reviews(torch.utils.data.Dataset):
    """Texts with two labels; with ``--once`` tokenised when it is created."""

    def __init__(self, count: int) -> None:
        draw = random.Random(0)
        texts = [
            " ".join("".join(draw.choices(LETTERS, k=20)) for _ in range(24)) for _ in range(count)
        ]
        self.items = [tokenize(text) if flag("--once") else text for text in texts]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> tuple[str | list[int], int]:
        return self.items[i], i % 2


def collate(samples: list[tuple[str | list[int], int]]) -> dict[str, torch.Tensor]:  # the cause
    rows = [tokenize(x) if isinstance(x, str) else x for x, _ in samples]  # the cause
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    labels = torch.tensor([label for _, label in samples])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


def main() -> None:
    start()
    shape = BertConfig(
        vocab_size=len(IDS) + 1, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=128, max_position_embeddings=64,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=16, num_train_epochs=2, logging_steps=50,
            report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=True,
            optim="adamw_torch_fused",
        )  # fmt: skip
        model = BertForSequenceClassification(shape)
        Trainer(model, arguments, train_dataset=Reviews(640), data_collator=collate).train()


if __name__ == "__main__":
    main()
