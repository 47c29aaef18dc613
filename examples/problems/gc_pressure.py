"""Objects refer to each other in circles: only the garbage collector can free them.

    fastprof run examples/problems/gc_pressure.py            # the problem
    fastprof run examples/problems/gc_pressure.py --healthy  # numbers instead of references
    fastprof run examples/problems/gc_pressure.py --rarely   # the fix that the finding advises

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
    words: list[Word] = []
    for _ in range(count):
        words.append(Word(words[-1] if words else None))
    return sum(word.before is not None for word in words)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 512), torch.nn.ReLU(), torch.nn.Linear(512, FEATURES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.randn(8, 128, FEATURES)
    if "--rarely" in sys.argv:
        gc.set_threshold(50_000, 20, 20)
    for step in range(150):
        batch = batches[step % len(batches)]
        weight = sentence(WORDS) / WORDS
        loss = weight * (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
