"""The time in which backward computes forwards again (torch.utils.checkpoint)."""

from collections.abc import Sequence
from itertools import islice

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
    inside = [False] * len(nodes)
    ns, calls = 0.0, 0
    places = zip(nodes.parent, nodes.key, strict=True)
    for i, (parent, key) in islice(enumerate(places), 1, None):
        inside[i] = again[key] or (inside[parent] and not backward[key])
        if inside[i]:
            ns += self_ns[i]
            # A checkpoint within another one counts once.
            calls += 0 if inside[parent] else nodes.calls[i]
    return ns, calls


def _of_torch(key: Key, file: str, names: frozenset[str] | set[str]) -> bool:
    # Before 3.11 a nested function's qualified name may be its bare one.
    name = key.qualname.rpartition("<locals>.")[2] or key.name
    return (
        key.kind == "python"
        and name in names
        and key.file.replace("\\", "/").endswith(f"torch/{file}")
    )
