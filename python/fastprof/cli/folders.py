"""The folder of a run: a new one for each, the same for all ranks of a job.

A run of ``train.py`` goes to ``fastprof_out/train-20260314-091501``, and ``fastprof_out/latest``
links to the newest.  Ranks start in different seconds, so the name has the start time of the
launcher, the parent of all ranks on a machine; ranks of several machines use the job's number, if
it has one.
"""

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fastprof.guards import dropped
from fastprof.session.environment.rank import Identity

LATEST = "latest"
_MOST = 1000


def run_folder(base: str, program: str) -> str:
    """Make the folder of a run below ``base``, and return its path.

    Raises:
        OSError: the folder cannot be created.
    """
    os.makedirs(base, exist_ok=True)
    identity = Identity()
    job = _job(os.environ, identity.world_size)
    name = f"{program_name(program)}-{job or _stamp(time.time())}"
    rank = f"rank{identity.rank}_"
    for i in range(1, _MOST):
        folder = os.path.join(base, name if i == 1 else f"{name}-{i}")
        with suppress(FileExistsError):
            os.mkdir(folder)
            return folder
        # Another rank of this job was first, or this rank has a file of an earlier job there.
        if job is not None and not any(file.startswith(rank) for file in os.listdir(folder)):
            return folder
    raise FileExistsError(f"{_MOST} runs already have the name {name!r}")


def ranks_here(env: Mapping[str, str], size: int) -> int:
    """Return how many of ``size`` ranks share the folder of :func:`run_folder`.

    Folders named after the launcher's start differ between the machines of torchrun.
    """
    local = env.get("LOCAL_WORLD_SIZE", "")
    if env.get("SLURM_JOB_ID") or env.get("TORCHELASTIC_RUN_ID", "none") != "none":
        return size
    return min(size, int(local)) if local.isdecimal() and len(local) < 8 else size


def program_name(program: str) -> str:
    """Return the name of a script or module for a folder's name."""
    name = os.path.basename(program.rstrip("/")) or "program"
    name = name.removesuffix(".py")
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:60].lstrip(".-") or "program"


def link_latest(folder: str) -> None:
    """Link ``latest`` next to a run's folder to it, unless the name belongs to something else."""
    link = Path(folder).parent / LATEST
    if link.exists() and not link.is_symlink():
        return
    temporary = link.with_name(f".{LATEST}-{os.getpid()}")
    with suppress(OSError):  # a file system without links
        temporary.symlink_to(Path(folder).name)
        temporary.replace(link)


def remove_if_empty(folder: str) -> None:
    """Remove a folder without files, if possible."""
    with dropped(BaseException):  # also an audit hook's: the status is the program's
        os.rmdir(folder)


def files_since(folder: str, began_ns: int) -> list[str]:
    """Return the names of the files in ``folder`` written since a moment, sorted."""
    names = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file() and entry.stat().st_mtime_ns >= began_ns:
                names.append(entry.name)
    return sorted(name for name in names if not name.startswith("."))


def _stamp(seconds: float) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(seconds))


def _job(env: Mapping[str, str], size: int) -> str | None:
    """Return an identifier that only the ranks of this job share; None: a single process."""
    if size == 1:
        return None
    restart = env.get("TORCHELASTIC_RESTART_COUNT", "0")
    again = f"-restart{restart}" if restart.isdigit() and restart != "0" else ""
    if env.get("SLURM_JOB_ID"):
        return _plain(f"job{env['SLURM_JOB_ID']}.{env.get('SLURM_STEP_ID', '0')}") + again
    run_id = env.get("TORCHELASTIC_RUN_ID", "none")
    if run_id != "none" and env.get("LOCAL_WORLD_SIZE") != str(size):
        return _plain(f"job-{run_id}") + again
    started = _parent_started()
    if started is None:
        return _plain(f"port{env.get('MASTER_PORT', '')}") + again
    return _stamp(started) + again


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:60]


def _parent_started() -> float | None:
    """Return the start of this process's parent, in seconds since 1970."""
    try:
        with open(f"/proc/{os.getppid()}/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/stat") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith("btime"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return booted + ticks / os.sysconf("SC_CLK_TCK")
