"""A LightningModule with two callbacks; one of them reads the norm of each gradient every step.

Right: unaccounted, logging-share, sync-item.
Fix: logging-share --every 50.
"""

from __future__ import annotations

import tempfile

import torch
from kit import number, start
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GradientNorms(Callback):
    """Keeps the norms and the largest values of all gradients."""

    def __init__(self) -> None:
        self.history: list[dict[str, float]] = []

    def on_after_backward(self, trainer: Trainer, module: LightningModule) -> None:  # the cause
        if trainer.global_step % number("--every", 1):
            return
        norms = {}
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                norms[f"{name}/norm"] = parameter.grad.norm().item()  # the cause
                norms[f"{name}/max"] = parameter.grad.abs().max().item()  # the cause
                norms[f"{name}/std"] = parameter.grad.std().item()  # the cause
        self.history.append(norms)


class Patience(Callback):
    """Counts epochs without progress."""

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        self.epochs = trainer.current_epoch


class Classifier(LightningModule):
    """Eight small residual layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, 128), nn.Linear(128, 5)
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(x).relu()
        return self.last(x)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)


def main() -> None:
    start()
    data = TensorDataset(torch.randn(6400, 32), torch.randint(0, 5, (6400,)))
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
            callbacks=[GradientNorms(), Patience()],
        ).fit(Classifier(), DataLoader(data, batch_size=64, num_workers=0))  # fmt: skip


if __name__ == "__main__":
    main()
