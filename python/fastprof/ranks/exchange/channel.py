"""The interface through which ranks exchange values."""

from collections.abc import Sequence
from typing import Protocol

#: ``0``: ranks exchange nothing.
SWITCH = "FASTPROF_RANKS"
#: Rank 0 reads at most this many values at a time.
DIRECT = 128
#: Longest value in bytes; longer ones are not read.
MAX_VALUE = 1 << 16


class Ended(Exception):  # noqa: N818 - not an error
    """The job has left the place where its ranks met, as happens at its end."""


class Channel(Protocol):
    """Small values by key; a later value replaces an earlier one.  Used by one thread.

    Every method may raise OSError, RuntimeError or ValueError if the place is gone, and
    :class:`Ended`.  After a ConnectionError or TimeoutError the caller may try again later.
    """

    def put(self, key: str, value: bytes) -> None:
        """Set ``key`` to ``value``."""

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the values of the ``keys`` that exist."""

    def close(self, *, last: bool) -> None:
        """Close the channel; ``last``: nobody needs its values any more."""


def window_key(rank: int) -> str:
    return f"window-{rank}"


def detail_key(rank: int) -> str:
    """Return the key of a rank's answer to rank 0."""
    return f"detail-{rank}"


def group_key(level: int, number: int) -> str:
    """Return the key of the group that a leader publishes."""
    return f"group-{level}-{number}"


#: Keys of rank 0's request and of the lines that it has logged.
REQUEST = "request"
VERDICTS = "verdicts"
