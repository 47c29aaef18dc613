"""A small GPT-2 with the Trainer of transformers.

Right: none.
"""

from __future__ import annotations

import tempfile

import torch
from kit import start
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    """Token ids in memory."""

    def __init__(self) -> None:
        self.ids = torch.randint(0, 500, (320, 64))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def main() -> None:
    start()
    shape = GPT2Config(vocab_size=500, n_positions=64, n_embd=128, n_layer=3, n_head=4)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=8, num_train_epochs=1, logging_steps=20,
            report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=True,
            optim="adamw_torch_fused",
        )  # fmt: skip
        Trainer(GPT2LMHeadModel(shape), arguments, train_dataset=Tokens()).train()


if __name__ == "__main__":
    main()
