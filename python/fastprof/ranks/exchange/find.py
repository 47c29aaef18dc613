"""Finds the channel through which the ranks of a job exchange values."""

import os
from collections.abc import Mapping

from fastprof.names import short_hash
from fastprof.ranks.exchange.channel import Channel
from fastprof.ranks.exchange.directory import DirectoryChannel
from fastprof.ranks.exchange.jax_store import open_jax
from fastprof.ranks.exchange.store import open_store
from fastprof.session.environment.rank import find_live_job, jax_state

#: Names the directory that the ranks of a job share.
DIRECTORY = "FASTPROF_RANKS_DIR"
#: Name the job's store.
STORE = ("MASTER_ADDR", "MASTER_PORT")


def job_mark(world_size: int, env: Mapping[str, str] | None = None) -> str:
    """Return a mark that distinguishes a job's values from other jobs.

    Values of an earlier start of the job have the same mark: a rank counts as alive when a second
    value comes.  torchrun's count of restarts differs between machines of a job.

    Args:
        env: the environment of one of them; None: of this process.
    """
    return short_hash(f"{find_live_job(env)} {world_size}")


def find_channel(job: str, world_size: int) -> Channel | None:
    """Return a channel to the ``world_size`` ranks of ``job``; None: none exists, or not yet.

    The channel uses a shared directory if the environment names one, else the store of
    torch.distributed or the service of jax.distributed, once the program uses it.

    Raises:
        OSError: it cannot be reached, so far.
        RuntimeError, ValueError: it cannot be used.
    """
    directory = os.environ.get(DIRECTORY)
    if directory:
        return DirectoryChannel(os.path.join(directory, f"fastprof-{job}"))
    return open_store(job, world_size) or open_jax(job)


def may_find_channel() -> bool:
    """Return whether the environment or jax says where the ranks meet."""
    named = bool(os.environ.get(DIRECTORY)) or all(os.environ.get(name) for name in STORE)
    return named or jax_state() is not None
