"""The data set of the demo's networks: labels by the names of the samples.

The demo plants a problem here, and its fix: fastprof shall find the one, and measure the other.
"""

import random
from collections.abc import Sequence
from typing import Protocol


def make_names(count: int) -> list[str]:
    """Return the names of ``count`` samples, in no order."""
    names = [f"sample-{i:05}" for i in range(count)]
    random.Random(0).shuffle(names)
    return names


class Labels(Protocol):
    """The labels of all samples."""

    def label(self, name: str) -> int: ...


class SearchedLabels:
    """The planted problem: each look-up searches the list of names from its beginning."""

    def __init__(self, names: Sequence[str], labels: Sequence[int]) -> None:
        self.names = names
        self.labels = labels

    def label(self, name: str) -> int:
        return self.labels[self.names.index(name)]


class IndexedLabels:
    """The fix: a dict finds a label at once."""

    def __init__(self, names: Sequence[str], labels: Sequence[int]) -> None:
        self.by_name = dict(zip(names, labels, strict=True))

    def label(self, name: str) -> int:
        return self.by_name[name]
