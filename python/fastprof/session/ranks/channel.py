"""Where ranks leave values for each other, and how a rank finds that place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from fastprof.names import short_hash
from fastprof.session.environment.rank import find_job

#: Names the directory that the ranks of a job share.
DIRECTORY = "FASTPROF_RANKS_DIR"
#: Name the job's store.
STORE = ("MASTER_ADDR", "MASTER_PORT")
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


def job_mark(world_size: int) -> str:
    """Return what tells the values of this job from those of others and of earlier starts."""
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return short_hash(f"{find_job()} {restarts[:20]} {world_size}")


def find_channel(job: str, world_size: int) -> Channel | None:
    """Return the way to the ``world_size`` ranks of ``job``; None: there is none, or not yet.

    A shared directory if the environment names one, else the store at which the ranks of
    torch.distributed meet, once the program uses that.

    Raises:
        OSError: it cannot be reached, so far.
        RuntimeError, ValueError: it is none.
    """
    directory = os.environ.get(DIRECTORY)
    if directory:
        from fastprof.session.ranks.directory import DirectoryChannel

        return DirectoryChannel(os.path.join(directory, f"fastprof-{job}"))
    from fastprof.session.ranks.store import open_store

    return open_store(job, world_size)


def may_find_channel() -> bool:
    """Whether the environment says where the ranks meet."""
    return bool(os.environ.get(DIRECTORY)) or all(os.environ.get(name) for name in STORE)
