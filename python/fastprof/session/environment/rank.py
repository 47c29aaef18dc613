"""Which process of a distributed job this is, without importing or starting anything."""

from __future__ import annotations

import os
import sys


def find_rank() -> int:
    """Return this process's rank: ``RANK`` in the environment, else torch.distributed's.

    torch.distributed is asked only if it is imported and initialised.  0 otherwise.
    """
    return _find("RANK", "get_rank", 0)


def find_world_size() -> int:
    """Return the number of processes of the job, found as the rank is; 1 otherwise."""
    return max(1, _find("WORLD_SIZE", "get_world_size", 1))


def find_local_rank() -> int:
    """Return this process's number on its machine: ``LOCAL_RANK``, else 0."""
    value = os.environ.get("LOCAL_RANK", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


def find_host() -> str | None:
    """Return this machine's name if it is one of several processes, as ranks are told by it."""
    return os.uname().nodename if find_world_size() > 1 else None


def _find(variable: str, function: str, default: int) -> int:
    value = os.environ.get(variable, "")
    if value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    distributed = sys.modules.get("torch.distributed")
    if distributed is None:
        return default
    try:
        if distributed.is_available() and distributed.is_initialized():
            return int(getattr(distributed, function)())
    except Exception:  # a rank that cannot be found is no reason to stop
        pass
    return default
