"""The rank of a run's process in its job: from its launcher, known at the start."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import fastprof
import pytest
from fastprof.session.environment.rank import Identity, find_local_rank

VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
    "SLURM_JOB_ID", "SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMIX_NAMESPACE",
    "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "OMPI_MCA_ess_base_jobid", "PMI_JOBID",
)  # fmt: skip


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)


def setenv(monkeypatch, text: str) -> None:
    for pair in text.split():
        monkeypatch.setenv(*pair.split("=", 1))


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ("", (0, 1)),
        ("RANK=2 WORLD_SIZE=4", (2, 4)),
        ("SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=8", (3, 8)),
        ("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", (1, 2)),
        ("PMI_RANK=5 PMI_SIZE=6", (5, 6)),
        # torchrun under srun, and mpirun in a job of Slurm.
        ("RANK=9 WORLD_SIZE=16 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2", (9, 16)),
        (
            "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4",
            (3, 4),
        ),
        ("SLURM_PROCID=3", (0, 1)),
        # a script of sbatch --ntasks=4, without srun
        ("SLURM_PROCID=0 SLURM_NTASKS=4", (0, 1)),
        ("SLURM_PROCID=x SLURM_STEP_NUM_TASKS=4", (0, 1)),
        ("RANK=3", (3, 1)),
    ],
)
def test_the_launcher_says_which_rank_it_is(env, found, monkeypatch) -> None:
    setenv(monkeypatch, env)
    assert Identity().ask() == found


def test_the_number_on_the_machine_is_the_launchers(monkeypatch) -> None:
    assert find_local_rank() == 0
    for name in ("SLURM_LOCALID=1", "OMPI_COMM_WORLD_LOCAL_RANK=2", "LOCAL_RANK=3"):
        setenv(monkeypatch, name)
        assert find_local_rank() == int(name[-1])


def test_what_torch_distributed_said_during_the_run_is_kept(tmp_path: Path, monkeypatch) -> None:
    ready = [False]
    distributed = types.ModuleType("torch.distributed")
    distributed.is_available = lambda: True
    distributed.is_initialized = lambda: ready[0]
    distributed.get_rank = lambda: 1
    distributed.get_world_size = lambda: 2
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    with fastprof.Profiler(functions=False, gpu=False, output=tmp_path / "run.fprof") as prof:
        ready[0] = True  # init_process_group()
        for _ in range(3):
            prof.step()
        ready[0] = False  # destroy_process_group()
    assert [path.name for path in tmp_path.iterdir()] == ["rank1_run.fprof"]
    meta = prof.snapshot().meta
    assert (meta["rank"], meta["world_size"]) == (1, 2)


@pytest.mark.parametrize(
    "env",
    ["SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4", "RANK=0"],
)
def test_processes_that_a_task_starts_itself_are_told_by_torch_distributed(
    env: str, tmp_path: Path, monkeypatch
) -> None:
    """mp.spawn under srun: every process inherits the task's variables."""
    setenv(monkeypatch, env)
    distributed = types.ModuleType("torch.distributed")
    distributed.is_available = lambda: True
    distributed.is_initialized = lambda: True
    distributed.get_rank = lambda: 3
    distributed.get_world_size = lambda: 8
    with fastprof.Profiler(functions=False, gpu=False, output=tmp_path / "run.fprof"):
        monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    assert [path.name for path in tmp_path.iterdir()] == ["rank3_run.fprof"]


def test_what_the_program_does_to_the_environment_later_changes_nothing(
    tmp_path: Path, monkeypatch
) -> None:
    setenv(monkeypatch, "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=77 SLURM_STEP_ID=0")
    with fastprof.Profiler(functions=False, gpu=False, output=tmp_path / "run.fprof") as prof:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "1")
    assert [path.name for path in tmp_path.iterdir()] == ["rank1_run.fprof"]
    assert prof.snapshot().meta["job"] == "SLURM_JOB_ID=77 SLURM_STEP_ID=0"


def test_a_profile_of_functions_alone_says_its_rank_in_a_job(tmp_path: Path, monkeypatch) -> None:
    def saved(name: str) -> Path:
        profile = fastprof.Profile()
        profile.runcall(sorted, [2, 1])
        profile.report().save(tmp_path / name)
        return tmp_path / name

    paths = []
    for rank in "01":
        setenv(monkeypatch, f"RANK={rank} WORLD_SIZE=2")
        paths.append(saved(f"{rank}.fprof"))
    made = fastprof.merge(paths)
    assert [row.rank for row in made.rows] == [0, 1]
    assert made.notes[0] == ("Who is late is not known: no steps were measured in ranks 0, 1.")
    assert "sorted" in {row.qualname.rpartition(".")[2] for row in made.functions}
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert "rank" not in fastprof.Profile().snapshot().meta


def test_a_single_process_is_of_no_job(monkeypatch) -> None:
    setenv(monkeypatch, "MASTER_ADDR=n1 MASTER_PORT=29500")
    assert Identity().to_meta()["job"] is None
    setenv(monkeypatch, "RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=abc")
    assert Identity().to_meta()["job"] == (
        "TORCHELASTIC_RUN_ID=abc MASTER_ADDR=n1 MASTER_PORT=29500"
    )
