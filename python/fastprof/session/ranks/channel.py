"""Where ranks leave values for each other, and how a rank finds that place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from fastprof.names import short_hash
from fastprof.session.environment.rank import find_job

#: Names the directory that the ranks of a job share.
DIRECTORY = "FASTPROF_RANKS_DIR"
#: ``0``: ranks tell each other nothing; ``1``: at the job's store, too.
SWITCH = "FASTPROF_RANKS"
#: No value is longer; a longer one is not read.
MAX_VALUE = 1 << 16


class Channel(Protocol):
    """Small values by key, of which the last one counts; used by one thread.

    Every method may raise OSError, RuntimeError or ValueError when the place is gone.
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


#: Where rank 0 puts its question, and what it has said.
REQUEST = "request"
VERDICTS = "verdicts"


def job_mark(world_size: int) -> str:
    """Return what tells the values of this job from those of others and of earlier starts."""
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return short_hash(f"{find_job()} {restarts[:20]} {world_size}")


def find_channel(job: str, *, with_store: bool) -> Channel | None:
    """Return the way to the other ranks of ``job``; None: there is none, or not yet.

    A shared directory if the environment names one, else, if wanted, the store at which the
    ranks of torch.distributed meet, once the program has imported that.

    Raises:
        OSError, RuntimeError, ValueError: it cannot be reached.
    """
    directory = os.environ.get(DIRECTORY)
    if directory:
        from fastprof.session.ranks.directory import DirectoryChannel

        return DirectoryChannel(os.path.join(directory, f"fastprof-{job}"))
    if not with_store:
        return None
    from fastprof.session.ranks.store import open_store

    return open_store(job)


def may_find_channel(*, with_store: bool) -> bool:
    """Whether the environment says where the ranks meet."""
    return bool(os.environ.get(DIRECTORY)) or (
        with_store and all(os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT"))
    )
