"""A thread of the program prepares the batches.

Right: none.
"""

from __future__ import annotations

import queue
import threading

import torch
from kit import mlp, start, update


def produce(queue: queue.Queue[torch.Tensor], steps: int) -> None:
    for _ in range(steps):
        queue.put(torch.randn(64, 256))


def main() -> None:
    start()
    steps, ready = 80, queue.Queue(maxsize=4)
    threading.Thread(target=produce, args=(ready, steps), daemon=True).start()
    model = mlp(256, 1024, 1024, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        x = ready.get()
        update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
