"""The time in which backward computes forwards again (torch.utils.checkpoint)."""

from collections.abc import Sequence
from itertools import compress

from fastprof.report.tree import at_or_below
from fastprof.snapshot import Key, NodeTable

#: What runs a checkpointed forward again: with ``use_reentrant=False``, and with True.
_AGAIN = frozenset({"recompute_fn", "CheckpointFunction.backward"})


def recomputed(
    nodes: NodeTable, self_ns: Sequence[float], keys: Sequence[Key]
) -> tuple[float, int]:
    """Return the time in ns of a thread's forwards in backward, and how many there were.

    The reentrant kind runs their backward in the same function, which does not count.
    """
    again = [_of_torch(key, "utils/checkpoint.py", _AGAIN) for key in keys]
    backward = [_of_torch(key, "autograd/__init__.py", {"backward"}) for key in keys]
    inside = at_or_below(nodes, again, until=backward)
    # A checkpoint within another one counts once.
    outermost = (here and not inside[nodes.parent[i]] for i, here in enumerate(inside))
    return sum(compress(self_ns, inside)), sum(compress(nodes.calls, outermost))


def _of_torch(key: Key, file: str, names: frozenset[str] | set[str]) -> bool:
    # Before 3.11 a nested function's qualified name may be its bare one.
    name = key.qualname.rpartition("<locals>.")[2] or key.name
    return (
        key.kind == "python"
        and name in names
        and key.file.replace("\\", "/").endswith(f"torch/{file}")
    )
