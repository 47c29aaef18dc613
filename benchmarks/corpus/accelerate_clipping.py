"""Accelerate with accumulation, clipped gradients and a schedule; four micro-batches per step.

Right: none.
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from kit import mlp, start
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    start()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = mlp(128, 768, 768, 10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    data = TensorDataset(torch.randn(16_384, 128), torch.randint(0, 10, (16_384,)))
    loader = DataLoader(data, batch_size=64)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    seen = 0.0
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        seen += loss.detach().float()
    accelerator.print(f"mean loss {seen / len(loader):.3f}")


if __name__ == "__main__":
    main()
