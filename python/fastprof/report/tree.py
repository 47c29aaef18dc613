"""Walks of a calling-context tree: what is above and below its nodes.

Parents come first in a tree's columns. Nothing here recurses: a tree may be as deep as its number
of nodes.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

from fastprof.snapshot import Key, NodeTable, ThreadTree

_Number = TypeVar("_Number", int, float)


def at_or_below(
    nodes: NodeTable, marked: Sequence[bool], *, until: Sequence[bool] | None = None
) -> list[bool]:
    """Return for each node whether it or a node above it has a marked key; the root has none.

    Args:
        marked: per key.
        until: per key; below such a node only what is marked again counts.
    """
    found = [False, *[marked[key] for key in nodes.key[1:]]]
    if until is None:
        for i, above in islice(enumerate(nodes.parent), 1, None):
            if found[above]:
                found[i] = True
    else:
        for i, above in islice(enumerate(nodes.parent), 1, None):
            if found[above] and not until[nodes.key[i]]:
                found[i] = True
    return found


def upward(nodes: NodeTable, node: int) -> Iterator[int]:
    """Yield a node and those above it, the root last."""
    while node >= 0:
        yield node
        node = nodes.parent[node]


def top_sections(nodes: NodeTable, keys: Sequence[Key]) -> list[int]:
    """Return for each node the key of the outermost section that contains it; -1: none."""
    is_section = [key.kind == "section" for key in keys]
    found = [-1]
    for parent, key in islice(zip(nodes.parent, nodes.key, strict=True), 1, None):
        above = found[parent]
        found.append(key if above == -1 and is_section[key] else above)
    return found


def subtree_sums(parent: Sequence[int], self_ns: Sequence[_Number]) -> list[_Number]:
    """Return the inclusive time of every node: the sum of exclusive times over its subtree."""
    sums = list(self_ns)
    for i in range(len(sums) - 1, 0, -1):
        sums[parent[i]] += sums[i]
    return sums


def joined(trees: Sequence[ThreadTree]) -> NodeTable:
    """Return the trees as one: the roots of the others are nodes below the first one."""
    if len(trees) == 1:
        return trees[0].nodes
    parent: list[int] = []
    for tree in trees:
        at = len(parent)
        parent += [above + at for above in tree.nodes.parent]
        parent[at] = 0 if at else -1
    tables = [(t.nodes.key, t.nodes.calls, t.nodes.resumes, t.nodes.self_ns) for t in trees]
    columns = (tuple(chain.from_iterable(of)) for of in zip(*tables, strict=True))
    return NodeTable(tuple(parent), *columns)


def child_links(parent: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the first child and the next sibling of each node; 0, the root, means "none"."""
    # Arrays here and below, because a tree may have a million nodes.
    first_child = array("l", (0,)) * len(parent)
    sibling = array("l", (0,)) * len(parent)
    for i in range(len(parent) - 1, 0, -1):
        above = parent[i]
        sibling[i] = first_child[above]
        first_child[above] = i
    return first_child, sibling


def callers_first(nodes: NodeTable) -> tuple[Sequence[int], Sequence[int]]:
    """Return the nodes in an order with each subtree after its node, and where subtrees end."""
    found: tuple[Sequence[int], Sequence[int]] | None = nodes.known.get("shape")
    if found is None:
        found = nodes.known["shape"] = _callers_first(nodes.parent)
    return found


def _callers_first(parent: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    n = len(parent)
    sizes = array("l", (1,)) * n
    for i in range(n - 1, 0, -1):
        sizes[parent[i]] += sizes[i]
    order = array("l", (0,)) * n
    ends = array("l", (n,)) * n
    #: Per node the position after its descendants placed so far.
    free = array("l", (1,)) * n
    for i, (above, size) in islice(enumerate(zip(parent, sizes, strict=True)), 1, None):
        place = free[above]
        free[above] = ends[place] = place + size
        free[i] = place + 1
        order[place] = i
    return order, ends
