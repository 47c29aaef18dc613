"""Lightning's Trainer, no validation; self.log() takes a twentieth of its short steps.

Right: logging-share.
Fix: logging-share --log-every 50.
"""

from __future__ import annotations

import tempfile

import lightning
import torch
from kit import mlp, number, start
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    """A perceptron as a LightningModule."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(128, 1024, 1024, 128)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = (self.net(batch[0]) - batch[0]).square().mean()
        if index % number("--log-every", 1) == 0:
            self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    start()
    loader = DataLoader(TensorDataset(torch.randn(6400, 128)), batch_size=64, num_workers=0)
    with tempfile.TemporaryDirectory() as folder:
        lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        ).fit(Net(), loader)  # fmt: skip


if __name__ == "__main__":
    main()
