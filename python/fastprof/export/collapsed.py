"""Collapsed stacks: one line per calling context, ``frame;frame;frame weight``.

The input of flame graph tools.  Weights are exclusive nanoseconds, so they add up to the recorded
thread time exactly.  The first frame is the thread.  A ``;`` in a name is written ``\\x3b``,
because it would split the frame in two.  Contexts deeper than :data:`MAX_DEPTH` are added to the
frame at that depth.

Each line has the whole stack, so a saved run of 1.5 MB can become 1.5 GB.  If a file would be
larger than :data:`MOST_BYTES`, contexts with little time are left out, and their time is added to
their callers.
"""

from collections.abc import Sequence
from typing import TextIO

from fastprof.export.depth import MAX_DEPTH, folded
from fastprof.export.frames import frame_label
from fastprof.export.gpu_stacks import gpu_stacks
from fastprof.names import printable_name
from fastprof.report.correct import correct
from fastprof.report.model import Report
from fastprof.report.tree import child_links, subtree_sums
from fastprof.report.writers import require_tree
from fastprof.snapshot import ThreadTree

#: A larger file is cut unless the caller chose a share.
MOST_BYTES = 100_000_000
#: Shares to try then, in percent.
_SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


def write(report: Report, stream: TextIO, *, min_percent: float | None = None) -> None:
    """Write every context that took time.

    Args:
        min_percent: contexts with a smaller share of the time, in percent, are added to their
            callers; None: the result of :func:`needed_percent`.
    """
    stacks = _Stacks(report)
    share = stacks.needed(MOST_BYTES) if min_percent is None else min_percent
    for tree, weight in zip(report.view.threads, stacks.weights(share), strict=True):
        _write_thread(tree, weight, stacks.labels, stream)


def write_gpu(report: Report, stream: TextIO) -> None:
    """Write the work on the GPU: a weight is its duration, the last frame a kernel or copy."""
    for frames, ns in gpu_stacks(report, "a collapsed-stack file by GPU time"):
        if ns:
            stream.write(f"{';'.join(map(_escaped, frames))} {ns}\n")


def needed_percent(report: Report, most: int | None = None) -> tuple[float, int]:
    """Return the least share in percent of contexts for a file of at most ``most`` bytes.

    Args:
        most: bytes of the file; None: :data:`MOST_BYTES`.

    Returns:
        the share, 0 if all contexts fit; and the approximate size of all of them in bytes.
    """
    stacks = _Stacks(report)
    return stacks.needed(MOST_BYTES if most is None else most), stacks.bytes(stacks.weights(0.0))


class _Stacks:
    """The contexts of a run with their times, for different shares."""

    def __init__(self, report: Report) -> None:
        require_tree(report, "a collapsed-stack file")
        snapshot = report.view
        self.labels = [_escaped(frame_label(key)) for key in snapshot.keys]
        self._threads = snapshot.threads
        self._columns = correct(snapshot, enabled=report.overhead.corrected).self_ns
        self._lengths = [_stack_lengths(tree, self.labels) for tree in self._threads]

    def needed(self, most: int) -> float:
        for share in (0.0, *_SHARES):
            if self.bytes(self.weights(share)) <= most:
                break
        return share

    def weights(self, share: float) -> list[list[int]]:
        """Return the time of each thread's contexts, including smaller ones below them."""
        whole = sum(sum(column) for column in self._columns)
        return [
            _gathered(tree.nodes.parent, column, whole * share / 100)
            for tree, column in zip(self._threads, self._columns, strict=True)
        ]

    def bytes(self, weights: list[list[int]]) -> int:
        return sum(
            length
            for lengths, column in zip(self._lengths, weights, strict=True)
            for length, ns in zip(lengths, column, strict=True)
            if ns
        )


def _stack_lengths(tree: ThreadTree, labels: list[str]) -> list[int]:
    """Return the approximate size in bytes of each context's line."""
    parent, key = tree.nodes.parent, tree.nodes.key
    sizes = [len(label) + 1 for label in labels]
    lengths = [len(tree.name) + 10] * len(parent)
    depth = [0] * len(parent)
    for i in range(1, len(parent)):
        above = parent[i]
        depth[i] = depth[above] + 1
        lengths[i] = lengths[above] + (sizes[key[i]] if depth[i] <= MAX_DEPTH else 0)
    return lengths


def _gathered(parent: Sequence[int], self_ns: Sequence[int], least_ns: float) -> list[int]:
    """Add the time of subtrees below ``least_ns`` to their parent contexts."""
    weights = list(self_ns)
    if not least_ns:
        return weights
    sums = subtree_sums(parent, self_ns)
    for i in range(len(parent) - 1, 0, -1):
        if sums[i] < least_ns:
            weights[parent[i]] += weights[i]
            weights[i] = 0
    return weights


def _escaped(frame: str) -> str:
    return frame.replace(";", "\\x3b")


def _write_thread(tree: ThreadTree, column: list[int], labels: list[str], stream: TextIO) -> None:
    parent, key = tree.nodes.parent, tree.nodes.key
    depth, weight = folded(parent, column)
    first_child, sibling = child_links(parent)
    stack = [_escaped(printable_name(tree.name or f"thread {tree.ident}", 500))]
    i = 0
    while True:
        if 0 < depth[i] <= MAX_DEPTH:
            del stack[depth[i] :]
            stack.append(labels[key[i]])
        if weight[i]:
            stream.write(f"{';'.join(stack)} {weight[i]}\n")
        if first_child[i]:
            i = first_child[i]
            continue
        while not sibling[i]:
            i = parent[i]
            if i <= 0:
                return
        i = sibling[i]
