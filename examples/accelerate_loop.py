"""Shows where a loop with Accelerate spends its time; fastprof needs one more line.

python examples/accelerate_loop.py
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from fastprof.integrations.accelerate import attach
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    data = TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    model, optimizer, loader = accelerator.prepare(
        net, torch.optim.AdamW(net.parameters(), lr=1e-3), DataLoader(data, batch_size=16)
    )
    profiling = attach(accelerator, loaders={"main": loader}, log_every=4)  # the one line
    for _ in range(2):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
    accelerator.end_training()
    print(profiling.report())


if __name__ == "__main__":
    main()
