"""The folder of a run: a new one each time, one for all ranks of a job, found again."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import fastprof
import pytest
from fastprof.cli import main
from fastprof.cli.folders import files_since, link_latest, program_name, ranks_here, run_folder
from fastprof.errors import LoadError


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)


def saved(path: Path, calls: int) -> Path:
    profile = fastprof.Profile()
    for _ in range(calls):
        profile.runcall(sorted, [2, 1])
    path.parent.mkdir(parents=True, exist_ok=True)
    profile.report().save(path)
    return path


def sorted_calls(folder: Path) -> int:
    return sum(row.calls for row in fastprof.load(folder).functions if "sorted" in row.name)


@pytest.mark.usefixtures("alone")
def test_two_runs_in_one_second_have_two_folders(tmp_path: Path) -> None:
    made = [run_folder(str(tmp_path), "dir/train.py") for _ in range(5)]
    assert len(set(made)) == 5
    assert all(re.match(r"train-\d{8}-\d{6}", os.path.basename(path)) for path in made)


def test_ranks_that_start_in_different_seconds_have_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    made = []
    for rank, now in ((0, 1_000_000_000.0), (1, 1_000_000_007.0)):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setattr(time, "time", lambda now=now: now)
        made.append(run_folder(str(tmp_path), "train.py"))
    assert made[0] == made[1]
    # A second job of the same launcher does not overwrite the first.
    for rank in (0, 1):
        Path(made[0], f"rank{rank}_train_profile.fprof").touch()
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        made.append(run_folder(str(tmp_path), "train.py"))
    assert made[2] == made[3] != made[0]


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3"}, "train-job77.3"),
        ({"TORCHELASTIC_RUN_ID": "a/b", "LOCAL_WORLD_SIZE": "2"}, "train-job-a_b"),
    ],
)
def test_ranks_of_several_machines_agree_by_the_number_of_their_job(
    env: dict[str, str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in {**env, "WORLD_SIZE": "4", "RANK": "0"}.items():
        monkeypatch.setenv(variable, value)
    assert os.path.basename(run_folder(str(tmp_path), "train.py")) == name
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert os.path.basename(run_folder(str(tmp_path), "train.py")) == f"{name}-restart2"


@pytest.mark.parametrize(
    ("env", "here"),
    [
        ({}, 4),
        ({"LOCAL_WORLD_SIZE": "2"}, 2),
        ({"LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}, 2),
        ({"LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a"}, 4),
        ({"LOCAL_WORLD_SIZE": "2", "SLURM_JOB_ID": "7"}, 4),
        ({"LOCAL_WORLD_SIZE": "x"}, 4),
    ],
)
def test_ranks_have_a_folder_in_common_on_a_machine_or_by_the_number_of_their_job(
    env: dict[str, str], here: int
) -> None:
    assert ranks_here(env, 4) == here


@pytest.mark.parametrize(
    ("program", "name"),
    [("a/b/train.py", "train"), ("pkg.train", "pkg.train"), ("..", "program"), ("a b;c", "a_b_c")],
)
def test_a_folder_is_named_after_the_program(program: str, name: str) -> None:
    assert program_name(program) == name


@pytest.mark.usefixtures("alone")
def test_latest_is_a_link_to_the_newest_and_replaces_nothing_else(tmp_path: Path) -> None:
    first, second = (run_folder(str(tmp_path), "train.py") for _ in range(2))
    link_latest(first)
    link_latest(second)
    assert (tmp_path / "latest").resolve() == Path(second).resolve()
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").mkdir()
    link_latest(first)
    assert not (tmp_path / "latest").is_symlink()


def test_only_files_of_this_run_are_listed(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    os.utime(tmp_path / "old", (1, 1))
    began = time.time_ns() - 10**9
    (tmp_path / "new").touch()
    (tmp_path / ".hidden").touch()
    assert files_since(str(tmp_path), began) == ["new"]


# ---- a folder instead of a file


def test_a_folder_is_the_newest_run_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = saved(tmp_path / "train-1" / "train_profile.fprof", 1)
    new = saved(tmp_path / "train-2" / "train_profile.fprof", 2)
    os.utime(old, (1, 1))
    (tmp_path / "latest").symlink_to("train-1")
    assert sorted_calls(tmp_path) == 2
    assert main(["report", str(tmp_path)]) == 0
    assert main(["compare", str(tmp_path / "train-1"), str(new)]) == 0
    assert main(["report", str(tmp_path / "latest"), "--format", "json"]) == 0
    capsys.readouterr()
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / "empty")]) == 2
    assert "no saved run (*.fprof) in the folder" in capsys.readouterr().err


def test_a_folder_of_ranks_is_all_of_them_for_merge_and_the_first_for_report(
    tmp_path: Path,
) -> None:
    for rank in (0, 1, 10):
        saved(tmp_path / "job" / f"rank{rank}_train_profile.fprof", 1 + rank)
    assert sorted_calls(tmp_path) == 1
    from fastprof.read.newest import ranks_of_newest

    names = [os.path.basename(path) for path in ranks_of_newest(tmp_path)]
    assert names == [f"rank{rank}_train_profile.fprof" for rank in (0, 1, 10)]
    (tmp_path / "other").mkdir()
    with pytest.raises(LoadError, match="no saved run"):
        fastprof.merge([tmp_path / "other"])
