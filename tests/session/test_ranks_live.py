"""Ranks of one job, each a process: who is late is told on rank 0, whoever dies."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from fastprof import Profiler
from fastprof.report.ranks_window import RankWindow, decode, encode
from fastprof.session.ranks.channel import job_mark
from helpers import child_env, run_child, time_scale

PROGRAM = """
import os, signal, sys, time
from fastprof import Profiler, profile_section
import fastprof.report.ranks_blocks as blocks
import fastprof.report.ranks_live as judge
import fastprof.session.ranks.live as live
import fastprof.session.ranks.recording as recording

# As with windows of ten seconds, but ten times as fast.
live._PUBLISH_S, live._LOOK_S, live._PATIENCE_S = 0.5, 0.1, 1.0
judge.SILENT_S, judge._DETAIL_S = 2.0, 1.0
blocks.WINDOW_S = recording._SECONDS = 1.0

rank, seconds, late_ms = int(os.environ["RANK"]), float(sys.argv[1]), float(sys.argv[2])

def decode(ms):
    time.sleep(ms / 1000)

began = time.monotonic()
with Profiler(gpu=False) as prof:
    print("started", flush=True)
    while time.monotonic() < began + seconds:
        own = 10.0 + (late_ms if rank == 1 else 0.0)
        with profile_section("data"):
            decode(own)
        with profile_section("barrier"):  # waits for the latest
            time.sleep((30.0 - own) / 1000)
        prof.step()
    began = time.monotonic()
print("ended after", time.monotonic() - began, flush=True)
"""


class Ranks:
    """The processes of one job, and what they have said."""

    def __init__(self, folder, world, seconds, late_ms):
        self.folder, self.processes = folder, []
        program = folder / "train.py"
        program.write_text(PROGRAM)
        for rank in range(world):
            env = child_env(
                {
                    "RANK": str(rank), "WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": "test",
                    "FASTPROF_RANKS_DIR": str(folder / "meet"), "PYTHONPATH": ":".join(sys.path),
                },
                guard=False,
            )  # fmt: skip
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, str(program), str(seconds), str(late_ms)], env=env,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder,
                )
            )  # fmt: skip
        for process in self.processes:
            assert process.stdout.readline() == "started\n"

    def end(self):
        """Wait; return what each has said."""
        return [p.communicate(timeout=60 * time_scale())[0] for p in self.processes]

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_the_late_rank_is_told_once_with_its_function(tmp_path):
    with Ranks(tmp_path, 3, 8, 15.0) as ranks:
        said = ranks.end()
    assert [p.returncode for p in ranks.processes] == [0, 0, 0], said
    told = [line for line in said[0].splitlines() if line.startswith("Rank ")]
    line = told[0]
    assert re.match(r"Rank 1 \(host \S+\) is late by 1\d\.\d ms per step since about step ", line)
    assert re.search(r": data, decode \(train\.py:16\), mostly in time\.sleep, \+1\d\.\d ms", line)
    assert len([line for line in told if " is late by " in line]) == 1
    assert "Rank" not in said[1] + said[2]
    assert not list((tmp_path / "meet").iterdir())  # nothing is left there
    for text in said:
        assert float(text.split("ended after ")[1].split()[0]) < 1.0


@pytest.mark.slow
def test_a_killed_rank_is_told_and_the_others_go_on(tmp_path):
    with Ranks(tmp_path, 3, 8, 0.0) as ranks:
        time.sleep(2)
        ranks.processes[2].send_signal(signal.SIGKILL)
        said = ranks.end()
    assert [p.returncode for p in ranks.processes] == [0, 0, -9], said
    (line,) = [line for line in said[0].splitlines() if "silent" in line]
    assert line.startswith("Rank 2 ")
    assert re.search(r"last seen in (data|barrier), (decode|code outside of functions) ", line)


@pytest.mark.slow
def test_a_stopped_rank_is_told_as_silent_and_heard_again(tmp_path):
    with Ranks(tmp_path, 2, 10, 0.0) as ranks:
        time.sleep(2)
        ranks.processes[1].send_signal(signal.SIGSTOP)
        time.sleep(4)
        ranks.processes[1].send_signal(signal.SIGCONT)
        said = ranks.end()
    assert [p.returncode for p in ranks.processes] == [0, 0], said
    assert "Rank 1 (host " in said[0]
    assert "has been silent for" in said[0]
    assert "is heard again." in said[0]


@pytest.mark.slow
def test_without_rank_0_the_others_go_on(tmp_path):
    with Ranks(tmp_path, 3, 5, 0.0) as ranks:
        time.sleep(1)
        ranks.processes[0].send_signal(signal.SIGKILL)
        said = ranks.end()
    assert [p.returncode for p in ranks.processes] == [-9, 0, 0], said
    assert "Rank" not in said[1] + said[2]


@pytest.mark.slow
def test_a_directory_that_goes_is_told_once_and_the_ranks_go_on(tmp_path):
    with Ranks(tmp_path, 2, 5, 0.0) as ranks:
        time.sleep(2)
        shutil.rmtree(tmp_path / "meet")
        said = ranks.end()
    assert [p.returncode for p in ranks.processes] == [0, 0], said
    for text in said:
        assert text.count("Ranks are not compared any more: FileNotFoundError") == 1


@pytest.mark.slow
def test_hostile_files_are_ignored_and_said_once(tmp_path):
    with Ranks(tmp_path, 2, 5, 0.0) as ranks:
        deadline = time.monotonic() + 20
        while not list(tmp_path.glob("meet/*/window-1")) and time.monotonic() < deadline:
            time.sleep(0.05)
        (folder,) = (tmp_path / "meet").iterdir()
        for key in ("window-1", "request", "detail-1"):
            for _ in range(20):
                (folder / key).write_bytes(os.urandom(3000))
                time.sleep(0.02)
        said = ranks.end()
    assert [p.returncode for p in ranks.processes] == [0, 0], said
    assert said[0].count("Values were ignored") <= 1
    assert "not compared" not in said[0] + said[1]


def test_metrics_of_ranks_reach_the_logger_of_rank_0(tmp_path, monkeypatch):
    from fastprof.session.ranks import live

    monkeypatch.setattr(live, "_PUBLISH_S", 0.1)
    monkeypatch.setattr(live, "_LOOK_S", 0.05)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "FASTPROF_RANKS_DIR": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    logged = {}
    folder = tmp_path / f"fastprof-{job_mark(2)}"
    with Profiler(
        functions=False, gpu=False, log_every=1, logger=lambda values, step: logged.update(values)
    ) as prof:
        deadline = time.monotonic() + 20
        while "profile/ranks/late_rank" not in logged and time.monotonic() < deadline:
            time.sleep(0.01)
            prof.step()
        window = RankWindow(job_mark(2), 1, 2, "n1", 1, 5, ended=True)
        (folder / "window-1").write_bytes(encode(window))
    assert logged["profile/ranks/late_rank"] == -1.0
    assert logged["profile/ranks/wait_ms"] == logged["profile/ranks/cost_percent"] == 0.0
    assert not folder.exists()


@pytest.mark.parametrize(
    ("ranks", "env"),
    [(False, {}), ("auto", {"FASTPROF_RANKS": "0"}), (True, {"WORLD_SIZE": "1"})],
)
def test_it_can_be_switched_off_and_needs_several_ranks(tmp_path, monkeypatch, ranks, env):
    base = {"RANK": "0", "WORLD_SIZE": "2", "FASTPROF_RANKS_DIR": str(tmp_path), **env}
    for name, value in base.items():
        monkeypatch.setenv(name, value)
    with Profiler(functions=False, gpu=False, ranks=ranks) as prof:
        time.sleep(0.05)
        prof.step()
    assert list(tmp_path.iterdir()) == []
    alone = "Ranks were not compared while the job ran: this process is the only rank."
    assert (alone in prof.report().notes) == (ranks is True)


def test_where_ranks_cannot_meet_is_said_only_if_it_was_asked_for(monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT", "FASTPROF_RANKS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for ranks, expected in (("auto", 0), (True, 1)):
        with Profiler(functions=False, gpu=False, ranks=ranks) as prof:
            prof.step()
        notes = [note for note in prof.report().notes if "FASTPROF_RANKS_DIR" in note]
        assert len(notes) == expected


def test_ranks_of_another_value_are_refused():
    with pytest.raises(ValueError, match="ranks is 1, expected one of"):
        Profiler(ranks=1)


def test_a_forked_child_has_no_part_in_it(tmp_path):
    result = run_child(
        f"""
import os, time
os.environ.update(RANK="1", WORLD_SIZE="2", FASTPROF_RANKS_DIR={str(tmp_path)!r})
from fastprof import Profiler
from fastprof.session.ranks import live
live._LOOK_S = live._PUBLISH_S = 0.05
with Profiler(functions=False, gpu=False) as prof:
    for _ in range(20):
        time.sleep(0.01); prof.step()
    child = os.fork()
    if not child:
        prof.stop(); os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    prof.step()
"""
    )
    result.check()


@pytest.mark.parametrize("how", ["sys.exit(3)", "os._exit(3)", "raise SystemExit(3)"])
def test_a_program_ends_as_it_would_without(tmp_path, how):
    result = run_child(
        f"""
import os, sys, time
os.environ.update(RANK="0", WORLD_SIZE="2", FASTPROF_RANKS_DIR={str(tmp_path)!r})
from fastprof import Profiler
from fastprof.session.ranks import live
live._LOOK_S = live._PUBLISH_S = 0.01
prof = Profiler(functions=False, gpu=False).start()
for _ in range(20):
    time.sleep(0.005); prof.step()
{how}
"""
    )
    result.check(returncode=3)


def alone(monkeypatch, folder, publish_s=0.2):
    from fastprof.session.ranks import live

    monkeypatch.setattr(live, "_PUBLISH_S", publish_s)
    monkeypatch.setattr(live, "_LOOK_S", 0.05)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "FASTPROF_RANKS_DIR": folder}.items():
        monkeypatch.setenv(name, str(value))
    return folder / f"fastprof-{job_mark(2)}"


def test_rank_0_hears_the_others_out_if_it_is_to_say_how_they_fared(tmp_path, monkeypatch):
    from fastprof.session.profiler import run_of
    from fastprof.session.ranks import live

    monkeypatch.setattr(live, "LAST_S", 20.0 * time_scale())
    folder = alone(monkeypatch, tmp_path)
    prof = Profiler(functions=False, gpu=False).start()
    run_of(prof).wait_for_ranks()
    while not (folder / "window-0").exists():
        time.sleep(0.01)
        prof.step()
    began = time.monotonic()
    prof.stop()
    assert time.monotonic() - began < 5.0  # the program goes on
    assert not decode((folder / "window-0").read_bytes()).ended
    window = RankWindow(job_mark(2), 1, 2, "n1", 1, 5, ended=True)
    (folder / "window-1").write_bytes(encode(window))
    job = run_of(prof).job()
    assert [(row.rank, row.state) for row in job.rows] == [(0, "ended"), (1, "ended")]
    assert job.verdict == "It is not known whether a rank is late."
    assert not folder.exists()


def test_rank_0_waits_for_a_rank_that_does_not_end_a_few_seconds_only(tmp_path, monkeypatch):
    from fastprof.session.profiler import run_of
    from fastprof.session.ranks import live

    monkeypatch.setattr(live, "LAST_S", 0.3)
    folder = alone(monkeypatch, tmp_path)
    prof = Profiler(functions=False, gpu=False).start()
    run_of(prof).wait_for_ranks()
    while not (folder / "window-0").exists():
        time.sleep(0.01)
        prof.step()
    prof.stop()
    assert [row.rank for row in run_of(prof).job().rows] == [0]
    assert decode((folder / "window-0").read_bytes()).ended


@pytest.mark.parametrize("relation", ["parent", "earlier"])
def test_a_process_that_a_rank_started_leaves_its_place_alone(tmp_path, monkeypatch, relation):
    folder = alone(monkeypatch, tmp_path, publish_s=2.0)
    folder.mkdir()
    host = os.uname().nodename
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = os.getppid() if relation == "parent" else other.pid
    try:
        with Profiler(functions=False, gpu=False) as prof:
            for beat in range(1, 21):
                window = RankWindow(job_mark(2), 0, 2, host, beat, beat, process=process, parent=1)
                (tmp_path / "new").write_bytes(encode(window))
                (tmp_path / "new").replace(folder / "window-0")
                time.sleep(0.05)
                prof.step()
    finally:
        other.kill()
        other.wait()
    there = decode((folder / "window-0").read_bytes())
    assert (there.process, there.beat, there.ended) == (process, 20, False)


@pytest.mark.parametrize("left", ["dead", "stopped", "child"])
def test_a_rank_takes_its_place_from_one_that_does_not_go_on_or_that_it_started(
    tmp_path, monkeypatch, left
):
    folder = alone(monkeypatch, tmp_path)
    folder.mkdir()
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    if left == "dead":
        other.kill()
        other.wait()
    parent = os.getpid() if left == "child" else 1
    window = RankWindow(
        job_mark(2), 0, 2, os.uname().nodename, 7, 7, process=other.pid, parent=parent
    )
    (folder / "window-0").write_bytes(encode(window))
    try:
        with Profiler(functions=False, gpu=False) as prof:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                time.sleep(0.02)
                prof.step()
                if decode((folder / "window-0").read_bytes()).process == os.getpid():
                    break
    finally:
        other.kill()
        other.wait()
    there = decode((folder / "window-0").read_bytes())
    assert (there.process, there.parent) == (os.getpid(), os.getppid())


def test_the_ranks_stand_before_the_report_that_the_exit_prints(tmp_path):
    result = run_child(
        f"""
import os, time
os.environ.update(RANK="0", WORLD_SIZE="2", FASTPROF_RANKS_DIR={str(tmp_path)!r})
from fastprof import Profiler
from fastprof.report.ranks_window import RankWindow, encode
from fastprof.session.ranks import live
from fastprof.session.ranks.channel import job_mark
live._LOOK_S = live._PUBLISH_S = 0.05
folder = os.path.join({str(tmp_path)!r}, "fastprof-" + job_mark(2))
os.mkdir(folder)
with open(os.path.join(folder, "window-1"), "wb") as file:
    file.write(encode(RankWindow(job_mark(2), 1, 2, "n1", 1, 5, ended=True)))
prof = Profiler(functions=False, gpu=False).start()
while not os.path.exists(os.path.join(folder, "window-0")):
    time.sleep(0.01); prof.step()
"""
    )
    result.check()
    assert result.stderr.startswith("Ranks: 2 of 2. It is not known whether a rank is late.\n")
    assert not list(tmp_path.iterdir())
