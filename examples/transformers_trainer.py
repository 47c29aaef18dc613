"""Shows where transformers' Trainer spends its time; fastprof needs one more line.

python examples/transformers_trainer.py [--out DIR]
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from fastprof.integrations.transformers import attach
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=tempfile.gettempdir(), help="where checkpoints go")
    folder = parser.parse_args().out
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=100,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
        )
    )
    rows = [
        {"input_ids": torch.randint(0, 100, (16,)), "labels": torch.tensor(i % 2)}
        for i in range(64)
    ]
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            num_train_epochs=2,
            logging_steps=4,
            eval_strategy="epoch",
            save_strategy="no",
        ),
        train_dataset=rows,
        eval_dataset=rows[:16],
    )
    profiling = attach(trainer)  # the one line
    trainer.train()
    print(profiling.report())


if __name__ == "__main__":
    main()
