"""Shows where a Lightning training spends its time; fastprof needs one more line.

python examples/lightning_trainer.py [--out DIR]
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import lightning.pytorch as pl
import torch
from fastprof.integrations.lightning import FastprofProfiler
from torch.utils.data import DataLoader, TensorDataset


class Regression(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
        )

    def loss(self, batch: Any) -> torch.Tensor:
        x, y = batch
        return torch.nn.functional.mse_loss(self.net(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=tempfile.gettempdir(), help="where checkpoints go")
    folder = parser.parse_args().out
    data = TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    profiler = FastprofProfiler(log_every=10)
    trainer = pl.Trainer(
        profiler=profiler,  # the one line
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=folder,
    )
    trainer.fit(Regression(), DataLoader(data, batch_size=16), DataLoader(data, batch_size=64))
    print(profiler.report())


if __name__ == "__main__":
    main()
