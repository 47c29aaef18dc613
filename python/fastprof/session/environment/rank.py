"""Finds the rank of this process in a distributed job, without importing or starting anything.

torchrun sets variables for each process.  The variables of Slurm and MPI belong to the processes
that these started, which may start others, so torch.distributed and jax.distributed come first.  At
the end of a run these are often shut down, so a run keeps their answer: :class:`Identity`.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from fastprof.guards import own_errors

#: Variables of a process's rank and of the number of processes: of torchrun and most others;
_TORCHRUN = ("RANK", "WORLD_SIZE")
#: of Open MPI, MPICH and Intel MPI, srun. mpirun may run in a job of Slurm.  sbatch sets
#: SLURM_PROCID and SLURM_NTASKS for its script, too, but only srun tells the number of a step.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
#: The number of a job's processes on this machine, by torchrun, Open MPI and MPICH.
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
#: Variables that the ranks of one job share, but not those of another job.
_JOBS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE",
         "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "MASTER_ADDR", "MASTER_PORT")  # fmt: skip


class Identity:
    """Rank and number of processes of a run, as last known for sure."""

    def __init__(self) -> None:
        #: The rank that a trainer knows, also before torch.distributed does; None: no trainer.
        self.of_trainer: int | None = None
        self._found: tuple[int, int] | None = None
        #: Valid until torch.distributed knows more.  Read once: programs change it.
        self._launched: tuple[int, int] | None = None
        self._has_asked = False

    def ask(self) -> tuple[int, int]:
        """Return the rank and number of processes known so far; (0, 1): unknown."""
        if not self._has_asked:
            self._has_asked = True
            self._found = _of(os.environ, *_TORCHRUN)
            self._launched = _launched(os.environ)
        if self._found is None:
            self._found = _distributed()
        return self._found or self._launched or (0, 1)

    @property
    def rank(self) -> int:
        """This process's rank; 0 if unknown."""
        if self.of_trainer is not None:
            return self.of_trainer
        return self.ask()[0]

    @property
    def world_size(self) -> int:
        """The number of processes of the job; 1 if unknown."""
        return self.ask()[1]

    def to_meta(self) -> dict[str, str | int | float | bool | None]:
        """Return the facts for a saved run.

        Machine names distinguish ranks; values that a job's ranks share distinguish jobs.
        """
        world_size = self.world_size
        return {
            "rank": self.rank,
            "world_size": world_size,
            "hostname": os.uname().nodename if world_size > 1 else None,
            "job": find_job() if world_size > 1 else None,
        }


def world_size_of(env: Mapping[str, str]) -> int:
    """Return the number of processes of a job by the environment of one of them; else 1."""
    found = _of(env, *_TORCHRUN) or _launched(env)
    return found[1] if found is not None else 1


def find_local_rank() -> int:
    """Return this process's number on its machine by the launcher's variables; else 0."""
    return _first_number(_LOCAL, 0)


def find_local_size() -> int:
    """Return the number of the job's processes on this machine; 1 if unknown."""
    return max(1, _first_number(_LOCAL_SIZES, 1))


def find_job(env: Mapping[str, str] | None = None, *, without: str = "") -> str | None:
    """Return a text that only ranks of the same job share, if known.

    Args:
        env: the environment of a rank; None: of this process.
        without: leave this variable out.
    """
    env = os.environ if env is None else env
    names = (name for name in _JOBS if env.get(name) and name != without)
    return " ".join(f"{name}={env[name][:100]}" for name in names) or None


def find_live_job(env: Mapping[str, str] | None = None) -> str | None:
    """Return the same for ranks that meet: rank 0 may call the machine they meet at localhost."""
    return find_job(env, without="MASTER_ADDR")


def _of(env: Mapping[str, str], rank_name: str, size_name: str) -> tuple[int, int] | None:
    rank, size = _number(env, rank_name), _number(env, size_name)
    return None if rank is None or size is None else (rank, max(1, size))


def _launched(env: Mapping[str, str]) -> tuple[int, int] | None:
    found = next(filter(None, (_of(env, *names) for names in _LAUNCHERS)), None)
    rank = _number(env, "RANK")
    return found if found is not None or rank is None else (rank, 1)


def _number(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def _first_number(names: Iterable[str], otherwise: int) -> int:
    """Return the number in the first of these variables that has one."""
    found = (_number(os.environ, name) for name in names)
    return next((number for number in found if number is not None), otherwise)


def torch_distributed() -> Any:
    """Return ``torch.distributed``; None: it is not initialised in this process."""
    distributed: Any = sys.modules.get("torch.distributed")
    # A torch that was built without it has the module, and not the function.
    is_initialized = getattr(distributed, "is_initialized", None)
    return distributed if is_initialized is not None and is_initialized() else None


def jax_state() -> Any:
    """Return jax.distributed's state in this process; None: it is not initialised.

    Its public functions would start the devices.
    """
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return state if getattr(state, "client", None) is not None else None


def _distributed() -> tuple[int, int] | None:
    try:
        distributed = torch_distributed()
        if distributed is not None:
            return int(distributed.get_rank()), max(1, int(distributed.get_world_size()))
        state = jax_state()
        if state is not None:
            return int(state.process_id), max(1, int(state.num_processes))
    except own_errors():  # an unknown rank is no reason to stop
        pass
    return None
