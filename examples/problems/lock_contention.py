"""A thread that sends statistics holds a lock while it waits; every step needs this lock.

    fastprof run examples/problems/lock_contention.py            # the problem
    fastprof run examples/problems/lock_contention.py --healthy  # holds it to take them only

Rule: lock-contention.
"""

from __future__ import annotations

import sys
import threading
import time

import torch

HEALTHY = "--healthy" in sys.argv


class Statistics:
    def __init__(self) -> None:
        self.lock, self.losses, self.end = threading.Lock(), [], threading.Event()

    def add(self, loss: torch.Tensor) -> None:
        with self.lock:
            self.losses.append(loss)

    def send_all(self) -> None:
        while not self.end.wait(0.002):
            with self.lock:
                losses, self.losses = self.losses, []
                if not HEALTHY:
                    send(losses)
            if HEALTHY:
                send(losses)


def send(losses: list) -> None:
    time.sleep(0.02)  # a slow server


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    threading.Thread(target=(statistics := Statistics()).send_all).start()
    x = torch.randn(1024, 256)
    for _ in range(100):
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        statistics.add(loss.detach())
    statistics.end.set()


if __name__ == "__main__":
    main()
