"""The Trainer of transformers, with evaluations and checkpoints in between.

Right: none.
"""

from __future__ import annotations

import tempfile

import torch
from kit import start
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    """Token ids in memory."""

    def __init__(self, count: int) -> None:
        self.ids = torch.randint(0, 500, (count, 64))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def main() -> None:
    start()
    shape = GPT2Config(vocab_size=500, n_positions=64, n_embd=96, n_layer=2, n_head=4)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=8, num_train_epochs=1, logging_steps=20,
            report_to="none", save_strategy="epoch", eval_strategy="steps", eval_steps=20,
            use_cpu=True, disable_tqdm=True, optim="adamw_torch_fused",
        )  # fmt: skip
        model = GPT2LMHeadModel(shape)
        Trainer(model, arguments, train_dataset=Tokens(400), eval_dataset=Tokens(80)).train()


if __name__ == "__main__":
    main()
