"""A channel in the store at which the ranks of torch.distributed meet.

Of that store this is one more client, with a connection of its own: it opens no port, makes
no process group and calls no collective.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from fastprof.session.ranks.channel import MAX_VALUE

_TIMEOUT_S = 3.0
_AT_ONCE = 256


class StoreChannel:
    """Keeps values in a store; see :class:`~fastprof.session.ranks.channel.Channel`.

    Args:
        store: a ``torch.distributed.Store``; its errors are RuntimeErrors.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self._known: set[str] = set()

    def put(self, key: str, value: bytes) -> None:
        """Set the key."""
        self._store.set(key, value)

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Get the keys that are there; a store would wait for others."""
        for key in keys:
            if key not in self._known and self._store.check([key]):
                self._known.add(key)
        there = [key for key in keys if key in self._known]
        found = {}
        for i in range(0, len(there), _AT_ONCE):
            some = there[i : i + _AT_ONCE]
            for key, value in zip(some, self._store.multi_get(some), strict=True):
                found[key] = bytes(value) if len(value) <= MAX_VALUE else b""
        return found

    def close(self, *, last: bool) -> None:
        """Close the connection; the store is the job's and ends with it."""
        self._store = None


def open_store(job: str) -> StoreChannel | None:
    """Return a channel in the job's store; None: the program has not imported torch so far.

    Raises:
        OSError, RuntimeError, ValueError: there is no store, or it does not answer.
    """
    torch = sys.modules.get("torch.distributed")
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if torch is None or not hasattr(torch, "PrefixStore") or not torch.is_available():
        return None
    if not address or not (port.isascii() and port.isdigit() and len(port) < 6):
        return None
    # torch would write a warning for each attempt, and may wait without end.
    socket.create_connection((address, int(port)), timeout=_TIMEOUT_S).close()
    store = torch.TCPStore(
        address,
        int(port),
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=_TIMEOUT_S),
    )
    return StoreChannel(torch.PrefixStore(f"fastprof/{job}", store))
