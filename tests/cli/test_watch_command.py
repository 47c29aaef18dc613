"""``fastprof watch``: the ranks of a job, read from their shared directory."""

from __future__ import annotations

import os
import time
from functools import partial

import pytest
from fastprof.cli import main, watch_command
from fastprof.ranks.exchange.find import job_mark
from fastprof.ranks.exchange.watch_sources import Folder
from fastprof.ranks.live.window import RankWindow, encode


@pytest.fixture(autouse=True)
def no_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTPROF_PROCESSES_DIR", str(tmp_path / "processes"))


def put(folder, rank, *, own_us=10_000, world=3, ended=False, age_s=0.0, beat=2, place=""):
    folder.mkdir(exist_ok=True)
    blocks = {16 * i: (30_000, 30_000 - own_us, own_us + i % 3) for i in range(30)}
    window = RankWindow(
        "job", rank, world, f"n{rank}", beat, 480, ended=ended, size=16, place=place,
        columns=("wall", "communication"), sections=("data",), blocks=blocks,
    )  # fmt: skip
    path = folder / f"window-{rank}"
    path.write_bytes(encode(window))
    os.utime(path, (time.time() - age_s,) * 2)


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "fastprof-0123abcd"
    for rank in range(3):
        put(folder, rank, own_us=20_000 if rank == 1 else 10_000)
    return folder


def listing(folder):
    return sorted((path.name, path.read_bytes()) for path in folder.rglob("*") if path.is_file())


def test_the_late_rank_is_shown_with_a_row_for_each(job, capsys):
    before = listing(job)
    assert main(["watch", str(job.parent), "--once"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert " ".join(out).startswith(
        "Ranks: 3 of 3, step 480. Rank 1 (host n1) is late by 10.0 ms per step since about step 0: "
    )
    table = out[out.index("ms per step, in the last 10 s of steps:") + 1 :]
    assert table[0].split() == [
        "rank", "host", "steps", "step", "own", "work", "late", "by", "data", "state",
    ]  # fmt: skip
    assert [row.split()[0] for row in table[1:4]] == ["0", "1", "2"]
    assert table[2].split() == ["1", "n1", "480", "30.0", "20.0", "10.0", "20.0", "late"]
    assert all(len(line) <= 100 for line in out)
    assert listing(job) == before  # nothing is written


def test_what_rank_0_has_said_is_shown_in_printable_ascii(job, capsys):
    (job / "verdicts").write_bytes(b"Rank 1 is late.\n\x1b[31mred\xff\n")
    assert main(["watch", str(job), "--once"]) == 0
    out = capsys.readouterr().out
    assert "Reported so far:\n- Rank 1 is late.\n- " in out
    assert "\x1b" not in out


def test_a_job_that_hangs_is_not_said_to_be_without_a_late_rank(job, capsys):
    """With --once nothing shows whether steps end, but rank 0 has listened for longer."""
    hang = "No step has ended for 15.0 s: each rank waits for the others."
    (job / "verdicts").write_text(f"Rank 1 is late.\n{hang}\n")
    assert main(["watch", str(job), "--once"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith(f"Ranks: 3 of 3, step 480. Rank 0 reported: {hang} ms per step, ")
    (job / "verdicts").write_text(f"{hang}\nSteps end again.\n")
    assert main(["watch", str(job), "--once"]) == 0
    assert "Ranks: 3 of 3, step 480. Rank 1 (host n1) is late by " in capsys.readouterr().out


def test_a_rank_that_sends_nothing_is_shown_as_silent(job, capsys):
    put(job, 2, age_s=40.0, place="data, decode (dataset.py:31)")
    assert main(["watch", str(job), "--once"]) == 0
    out = capsys.readouterr().out
    assert "Rank 2: no heartbeat for 40.0 s, last seen in data, decode (dataset.py:31)" in out


def test_of_several_jobs_the_newest_is_shown(job, capsys):
    put(job.parent / "fastprof-old", 0, world=7, age_s=500.0)
    assert main(["watch", str(job.parent), "--once"]) == 0
    assert capsys.readouterr().out.startswith("Ranks: 3 of 3, ")


def test_damaged_files_are_left_out(job, capsys):
    (job / "window-0").write_bytes(b"no window")
    (job / "window-x").write_bytes(b"")
    assert main(["watch", str(job), "--once"]) == 0
    assert capsys.readouterr().out.startswith("Ranks: 2 of 3, ")


def test_watch_says_that_a_job_has_ended(job, capsys):
    for rank in range(3):
        put(job, rank, ended=True)
    assert main(["watch", str(job)]) == 0  # no terminal: once
    assert capsys.readouterr().out == "The job has ended.\n"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["{}/none"], "no such directory: "),
        (["{}"], "no rank has published anything in "),
        (
            [],
            "no process of this user on this machine is recorded by fastprof now, and none has ",
        ),
        ([], "a job of jax can be read from the directory only"),
    ],
)
def test_a_folder_without_windows_is_an_error(tmp_path, monkeypatch, capsys, argv, expected):
    monkeypatch.delenv("FASTPROF_RANKS_DIR", raising=False)
    monkeypatch.setattr(watch_command, "running_jobs", list)
    assert main(["watch", *(arg.format(tmp_path) for arg in argv)]) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert err.count("\n") == 1


def test_without_a_directory_the_newest_job_that_publishes_is_shown(job, monkeypatch, capsys):
    env = {"WORLD_SIZE": "3", "RANK": "1", "MASTER_PORT": "1234"}
    other = {**env, "FASTPROF_RANKS_DIR": str(job.parent / "other")}
    here = {**env, "FASTPROF_RANKS_DIR": str(job.parent)}
    job.rename(job.parent / f"fastprof-{job_mark(3, here)}")
    monkeypatch.delenv("FASTPROF_RANKS_DIR", raising=False)
    monkeypatch.setattr(watch_command, "running_jobs", lambda: [other, here])
    assert main(["watch", "--once"]) == 0
    assert capsys.readouterr().out.startswith("Ranks: 3 of 3, step 480. Rank 1 (host n1) is late")
    monkeypatch.setattr(watch_command, "running_jobs", lambda: [other])
    assert main(["watch", "--once"]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("rich", [True, False])
def test_it_goes_on_in_a_terminal_until_the_job_ends(job, monkeypatch, rich):
    monkeypatch.setattr(watch_command, "_EVERY_S", 0.01)
    shown = []

    class Watched(watch_command.Watch):
        def look(self):
            if len(shown) == 3:
                for rank in range(3):
                    put(job, rank, ended=True, beat=3)
            shown.append(1)
            return super().look()

    watch = Watched(Folder(str(job)))
    if not rich:
        monkeypatch.setitem(__import__("sys").modules, "rich.live", None)
    assert watch_command._follow(partial(watch_command._loop, watch)) == "The job has ended."
    assert len(shown) == 4


def test_a_job_of_which_nothing_is_heard_for_a_minute_is_dead(job, monkeypatch):
    monkeypatch.setattr(watch_command, "_EVERY_S", 0.01)
    monkeypatch.setattr(watch_command, "_DEAD_S", 0.05)
    watch = watch_command.Watch(Folder(str(job)))
    assert watch_command._loop(watch, lambda lines: None) == (
        "No rank has sent a heartbeat for 0 s: the job is dead, or stopped."
    )


def test_a_clock_that_differs_from_that_of_the_job_makes_no_job_dead(job):
    watch = watch_command.Watch(Folder(str(job)))
    for beat in (3, 4, 5):
        for rank in range(3):
            put(job, rank, beat=beat, age_s=500.0)
        told = watch.look()
    assert watch.silent_s() < 60.0
    assert not any(row.state.startswith("silent") for row in told.rows)


def test_a_job_that_is_started_again_is_followed(job):
    watch = watch_command.Watch(Folder(str(job.parent)))
    assert len(watch.look().rows) == 3
    again = job.parent / "fastprof-again"
    for rank in range(2):
        put(again, rank, world=2, age_s=-5.0)
    assert watch.look().world_size == 3  # the first one still lives
    for rank in range(3):
        put(job, rank, beat=3, ended=True)
    assert watch.look().world_size == 2


def test_a_directory_that_cannot_be_read_any_more_is_an_error_in_one_line(job, monkeypatch, capsys):
    def look(self):
        raise OSError(116, "Stale file handle", str(job))

    monkeypatch.setattr(watch_command.Watch, "look", look)
    assert main(["watch", str(job), "--once"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["watch", str(job)]) == 2
    err = capsys.readouterr().err
    assert "stale file handle" in err
    assert err.count("\n") == 1


def test_a_directory_that_goes_is_the_end_of_the_job(job):
    watch = watch_command.Watch(Folder(str(job)))
    for path in job.iterdir():
        path.unlink()
    job.rmdir()
    assert watch.look() is None
