"""Where ranks leave values for each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

#: ``0``: ranks tell each other nothing.
SWITCH = "FASTPROF_RANKS"
#: Rank 0 reads no more values than these at a time.
DIRECT = 128
#: No value is longer; a longer one is not read.
MAX_VALUE = 1 << 16


class Ended(Exception):  # noqa: N818 - not an error
    """The job has left the place where its ranks met, as it does at its end."""


class Channel(Protocol):
    """Small values by key, of which the last one counts; used by one thread.

    Every method may raise OSError, RuntimeError or ValueError when the place is gone, and
    :class:`Ended`.  After a ConnectionError or TimeoutError it may be tried again later.
    """

    def put(self, key: str, value: bytes) -> None:
        """Put ``value`` in the place of what was there."""

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the values of those of ``keys`` that are there."""

    def close(self, *, last: bool) -> None:
        """Let go of the place; ``last``: nobody will need what was put there."""


def window_key(rank: int) -> str:
    """Where a rank puts its windows."""
    return f"window-{rank}"


def detail_key(rank: int) -> str:
    """Where a rank puts its answer to rank 0."""
    return f"detail-{rank}"


def group_key(level: int, number: int) -> str:
    """Where a leader puts the group of the ranks that it leads."""
    return f"group-{level}-{number}"


#: Where rank 0 puts its question, and what it has said.
REQUEST = "request"
VERDICTS = "verdicts"
