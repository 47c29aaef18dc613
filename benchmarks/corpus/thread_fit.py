"""The training runs in a thread, as behind a window or a web server; main shows its progress.

Right: none.
"""

from __future__ import annotations

import threading

import torch
from kit import mlp, start, update


class Job(threading.Thread):
    """Trains, and counts its steps."""

    def __init__(self) -> None:
        super().__init__(name="training")
        self.step = 0

    def run(self) -> None:
        x, y = torch.randn(8, 128, 128), torch.randint(0, 10, (8, 128))
        model = mlp(128, 768, 768, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        while self.step < 150:
            i = self.step % 8
            update(torch.nn.functional.cross_entropy(model(x[i]), y[i]), optimizer)
            self.step += 1


def main() -> None:
    start()
    job = Job()
    job.start()
    while job.is_alive():
        job.join(0.5)
        print(f"{job.step} steps")


if __name__ == "__main__":
    main()
