"""Objects refer to each other in circles: only the garbage collector can free them.

    fastprof run examples/problems/gc_pressure.py            # the problem
    fastprof run examples/problems/gc_pressure.py --healthy  # numbers instead of references

Rule: gc-pressure.
Advice: --rarely.
"""

from __future__ import annotations

import gc
import sys

import torch

HEALTHY = "--healthy" in sys.argv
FEATURES, WORDS = 256, 4000


class Word:
    """A word of a sentence; it knows its neighbours."""

    def __init__(self, before: Word | None) -> None:
        self.before, self.after = before, None
        if before is not None:
            before.after = self  # the circle


def sentence(count: int) -> int:
    """Return how many words have a neighbour before them."""
    if HEALTHY:
        before = list(range(-1, count - 1))
        return count - before.count(-1)
    words = [Word(None)]
    for _ in range(count - 1):
        words.append(Word(words[-1]))
    return sum(word.before is not None for word in words)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 512), torch.nn.ReLU(), torch.nn.Linear(512, FEATURES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.randn(8, 128, FEATURES)
    gc.set_threshold(*((50_000, 20, 20) if "--rarely" in sys.argv else gc.get_threshold()))
    for step in range(150):
        batch = batches[step % len(batches)]
        loss = sentence(WORDS) / WORDS * (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
