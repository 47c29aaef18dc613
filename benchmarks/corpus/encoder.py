"""A transformer encoder of torch, with its own attention.

Right: none.
"""

from __future__ import annotations

import torch
from kit import start, update
from torch import nn


def main() -> None:
    start()
    x = torch.randn(4, 16, 48, 128)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = nn.TransformerEncoder(layer, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(50):
        update((model(x[step % 4]) - x[step % 4]).square().mean(), optimizer)


if __name__ == "__main__":
    main()
