"""The deepest stack that an export writes.

Lines of collapsed stacks repeat the whole stack, so a file would grow with the square of the depth.
speedscope walks a tree by recursion; with several thousand levels, its import ends with an overflow
of JavaScript's stack.
"""

from collections.abc import Sequence

#: Most frames of one tree in a stack, from its root; deeper ones count there.
MAX_DEPTH = 1024


def places(parent: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the depth of each context, and where it appears: itself, or its ancestor at the limit.

    Args:
        parent: the parent of each context, which precedes it; the root's is ignored.
    """
    depth = [0] * len(parent)
    place = list(range(len(parent)))
    for i in range(1, len(parent)):
        depth[i] = depth[parent[i]] + 1
        if depth[i] > MAX_DEPTH:
            place[i] = place[parent[i]]
    return depth, place


def folded(parent: Sequence[int], weight: Sequence[int]) -> tuple[list[int], list[int]]:
    """Add the weight of contexts deeper than :data:`MAX_DEPTH` to their ancestor at that depth.

    Args:
        parent: the parent of each context, which precedes it; the root's is ignored.
        weight: the exclusive weight of each context.

    Returns:
        the depth of each context, and its weight, which is 0 for deeper ones.
    """
    depth, place = places(parent)
    weights = [0] * len(parent)
    for i, ns in zip(place, weight, strict=True):
        weights[i] += ns
    return depth, weights
