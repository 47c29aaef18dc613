"""Finding running jobs of several ranks on this machine by the environments of processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fastprof.ranks.exchange.running import running_jobs
from helpers import run_child

TORCH = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.fixture
def proc(tmp_path: Path):
    def add(number: int, began: int, env: dict[str, str] | None, name: str = "python") -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        if env is not None:
            items = (f"{key}={value}".encode() for key, value in env.items())
            (folder / "environ").write_bytes(b"\0".join([*items, b""]))
        fields = ["S", *("0" for _ in range(18)), str(began), "0"]
        (folder / "stat").write_text(f"{number} ({name}) {' '.join(fields)}\n")

    add.folder = str(tmp_path)  # type: ignore[attr-defined]
    return add


def test_the_newest_job_comes_first_and_each_job_once(proc):
    older = {**TORCH, "MASTER_PORT": "29501"}
    proc(10, 100, older)
    proc(11, 300, TORCH, name="a) S 7 (b")
    proc(12, 301, {**TORCH, "RANK": "0"})
    found = [dict(env) for env in running_jobs(proc.folder)]
    assert found == [{**TORCH, "RANK": "0"}, older]


@pytest.mark.parametrize(
    "env",
    [
        None,
        {},
        {**TORCH, "WORLD_SIZE": "1"},
        {**TORCH, "WORLD_SIZE": "many"},
        {**TORCH, "MASTER_PORT": ""},
        {**TORCH, "FASTPROF_RANKS": "0"},
    ],
)
def test_a_process_of_no_such_job_is_left_out(proc, env):
    proc(10, 100, env)
    assert running_jobs(proc.folder) == []


def test_a_process_that_has_ended_meanwhile_or_a_system_without_such_files_has_no_job(proc):
    proc(10, 100, TORCH)
    os.unlink(os.path.join(proc.folder, "10", "stat"))
    assert running_jobs(proc.folder) == []
    assert running_jobs(os.path.join(proc.folder, "none")) == []


def test_a_real_process_is_found():
    port = str(20_000 + os.getpid() % 10_000)
    code = (
        "from fastprof.ranks.exchange.running import running_jobs\n"
        "print([env.get('MASTER_PORT') for env in running_jobs()])\n"
    )
    assert port in run_child(code, env={**TORCH, "MASTER_PORT": port}).check().stdout
