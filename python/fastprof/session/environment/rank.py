"""Which process of a distributed job this is, without importing or starting anything.

The launcher says so in the environment, from the start on.  Where it does not,
torch.distributed does while it is initialised; at the end of a run it often is not any
more, so a run keeps what was found first: :class:`Identity`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

#: Variables of a process's rank and of their number: torchrun and most others, Open MPI,
#: MPICH and Intel MPI, srun.  torchrun may run under srun, mpirun in a job of Slurm.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
#: What ranks of one job have in common, and those of another have not.
_JOBS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE",
         "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "MASTER_ADDR", "MASTER_PORT")  # fmt: skip


class Identity:
    """Rank and number of processes of a run, as they were when they were first known.

    Args:
        rank: the rank, if the program says it.
    """

    def __init__(self, rank: int | None = None) -> None:
        self._given = rank
        self._found: tuple[int, int] | None = None

    def ask(self) -> bool:
        """Find out, unless it is known; whether it is known now."""
        if self._found is None:
            self._found = _launched(os.environ) or _distributed()
        return self._found is not None

    @property
    def rank(self) -> int:
        """This process's rank; 0 where nothing tells."""
        if self._given is not None:
            return self._given
        return self._found[0] if self.ask() and self._found is not None else 0

    @property
    def world_size(self) -> int:
        """How many processes the job has; 1 where nothing tells."""
        return self._found[1] if self.ask() and self._found is not None else 1

    def to_meta(self) -> dict[str, str | int | float | bool | None]:
        """Return the facts that a saved run has of it.

        Ranks are told by the names of their machines, and jobs by what their ranks have in common.
        """
        world_size = self.world_size
        return {
            "rank": self.rank,
            "world_size": world_size,
            "hostname": os.uname().nodename if world_size > 1 else None,
            "job": find_job() if world_size > 1 else None,
        }


def find_rank() -> int:
    """Return this process's rank: what the launcher says, else torch.distributed; else 0.

    torch.distributed is asked only if it is imported and initialised.
    """
    return Identity().rank


def find_world_size() -> int:
    """Return the number of processes of the job, found as the rank is; 1 otherwise."""
    return Identity().world_size


def find_local_rank() -> int:
    """Return this process's number on its machine, as the launcher says; else 0."""
    found = (_number(os.environ, name) for name in _LOCAL)
    return next((number for number in found if number is not None), 0)


def find_job() -> str | None:
    """Return what ranks of one job have in common and others at the time have not, if known."""
    facts = [f"{name}={os.environ[name][:100]}" for name in _JOBS if os.environ.get(name)]
    return " ".join(facts) or None


def _launched(env: Mapping[str, str]) -> tuple[int, int] | None:
    for rank_name, size_name in _LAUNCHERS:
        rank, size = _number(env, rank_name), _number(env, size_name)
        if rank is not None and size is not None:
            return rank, max(1, size)
    rank = _number(env, "RANK")
    if rank is None:
        return None
    size_of = _distributed()
    return rank, 1 if size_of is None else size_of[1]


def _number(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def _distributed() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None:
        return None
    try:
        if distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank()), max(1, int(distributed.get_world_size()))
    except Exception:  # a rank that cannot be found is no reason to stop
        pass
    return None
