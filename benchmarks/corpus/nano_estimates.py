"""A language model from a memory map; it estimates two losses on 20 batches after every ten steps.

Right: validation-share.
Fix: validation-share --interval 50.
"""

from __future__ import annotations

import math
import os
import tempfile

import numpy as np
import torch
from gpt import Gpt
from kit import number, start

batch_size, block_size, max_iters, warmup_iters = 8, 64, 60, 10
learning_rate, min_lr = 1e-3, 1e-4


def get_batch(data_dir: str, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    data = np.memmap(os.path.join(data_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack(
        [torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix]
    )
    return x, y


@torch.no_grad()
def estimate_loss(model: Gpt, data_dir: str) -> dict[str, float]:  # the cause
    out = {}
    model.eval()
    for split in ("train", "val"):
        losses = torch.zeros(20)
        for k in range(20):
            losses[k] = model(*get_batch(data_dir, split)).item()
        out[split] = losses.mean().item()
    model.train()
    return out


def get_lr(it: int) -> float:
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


def main() -> None:
    start()
    with tempfile.TemporaryDirectory() as data_dir:
        for split in ("train", "val"):
            tokens = np.random.default_rng(0).integers(0, 256, 50_000).astype(np.uint16)
            tokens.tofile(os.path.join(data_dir, f"{split}.bin"))
        model = Gpt(width=96, layers=3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, fused=True)
        x, y = get_batch(data_dir, "train")
        for it in range(max_iters):
            for group in optimizer.param_groups:
                group["lr"] = get_lr(it)
            if it % number("--interval", 10) == 0:
                print(it, estimate_loss(model, data_dir))
            loss = model(x, y)
            x, y = get_batch(data_dir, "train")
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main()
