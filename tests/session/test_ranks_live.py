"""Ranks of one job, each a process: rank 0 names the late rank, even if any rank dies."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from array import array
from types import FunctionType

import pytest
from fastprof import Profiler, profile_section
from fastprof.ranks.blocks import HeardRank, add_blocks, run_in_blocks
from fastprof.ranks.cause import sections_of
from fastprof.ranks.exchange import live, pace
from fastprof.ranks.exchange.channel import REQUEST, Ended
from fastprof.ranks.exchange.directory import DirectoryChannel
from fastprof.ranks.exchange.find import job_mark
from fastprof.ranks.exchange.recording import Recording, _spent
from fastprof.ranks.exchange.talk import Talk
from fastprof.ranks.exchange.tcpstore import NotAStoreError
from fastprof.ranks.live.window import RankWindow, Request, decode, encode
from fastprof.session.profiler import run_of
from helpers import child_env, run_child, time_scale, wait_for_sleeping_threads

PROGRAM = """
import os, signal, sys, time
from fastprof import Profiler, profile_section
import fastprof.ranks.blocks as blocks
import fastprof.ranks.live.heard as heard
import fastprof.ranks.live.judge as judge
import fastprof.ranks.exchange.live as live
import fastprof.ranks.exchange.pace as pace
import fastprof.ranks.exchange.recording as recording

# As with windows of ten seconds, but ten times as fast.
pace.PUBLISH_S, pace.LOOK_S, pace.PATIENCE_S = 0.5, 0.1, 1.0
heard.SILENT_S = judge.SILENT_S = 2.0
judge._DETAIL_S = 1.0
blocks.WINDOW_S = recording._SECONDS = 1.0

rank, seconds, late_ms = int(os.environ["RANK"]), float(sys.argv[1]), float(sys.argv[2])

def decode(ms):
    time.sleep(ms / 1000)

began = time.monotonic()
with Profiler(gpu=False) as prof:
    print("started", flush=True)
    while time.monotonic() < began + seconds and not os.path.exists("finish"):
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
    """The processes of one job, and their output."""

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

    def wait_for(self, text):
        """Read the output of rank 0 until a line contains ``text``; return what was read."""
        hanging = threading.Timer(120 * time_scale(), self.processes[0].kill)
        hanging.start()
        read = ""
        while text not in read:
            line = self.processes[0].stdout.readline()
            assert line, f"rank 0 ended without {text!r}: {read}"
            read += line
        hanging.cancel()
        return read

    def finish(self):
        """Let the loops end."""
        (self.folder / "finish").touch()

    def end(self):
        """Wait; return the output of each."""
        return [p.communicate(timeout=60 * time_scale())[0] for p in self.processes]

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        for process in self.processes:
            process.kill()
            process.wait()


def wait_until_heard(folder, ranks):
    """Wait until rank 0 has heard these ranks several times; return the folder of the job."""
    beats = {rank: set() for rank in (0, *ranks)}
    deadline = time.monotonic() + 60 * time_scale()
    while min(map(len, beats.values())) < 4:
        assert time.monotonic() < deadline, beats
        time.sleep(0.05)
        for rank, seen in beats.items():
            seen.update(
                decode(file.read_bytes()).beat for file in folder.glob(f"meet/*/window-{rank}")
            )
    return next(folder.glob("meet/*/window-0")).parent


@pytest.mark.slow
def test_the_late_rank_is_told_once_with_its_function(tmp_path):
    with Ranks(tmp_path, 3, 8, 15.0) as ranks:
        said = ranks.end()
    assert [p.returncode for p in ranks.processes] == [0, 0, 0], said
    told = [line for line in said[0].splitlines() if line.startswith("Rank ")]
    line = told[0]
    # On a busy machine the ranks are compared without their waits.
    late = r"is late by 1\d\.\d ms per step(, waits for a CPU not counted,)? since .*step "
    assert re.match(rf"Rank 1 \(host \S+\) {late}", line), line
    decode = PROGRAM[: PROGRAM.index("def decode")].count("\n") + 1
    where = (
        rf"data \+1\d\.\d ms, in decode \(train\.py:{decode}\), mostly in time\.sleep; this costs"
    )
    assert re.search(where, line)
    assert len([line for line in told if " is late by " in line]) == 1
    assert "Rank" not in said[1] + said[2]
    assert not list((tmp_path / "meet").iterdir())  # nothing remains there
    for text in said:
        assert float(text.split("ended after ")[1].split()[0]) < 1.0


def test_a_rank_names_its_functions_between_its_steps():
    def save():
        time.sleep(0.05)

    with Profiler(gpu=False, skip_first=0) as prof:
        recorder = run_of(prof).recorder
        recording = Recording(recorder, "job", 0, 2, "n0")
        prof.enter_phase("setup")
        prof.enter_phase("steps")
        for i in range(12):
            time.sleep(0.001)
            prof.step()
            if i % 3 == 2:
                prof.enter_phase("checkpoint")
                save()
                prof.leave_phase("checkpoint")
                thread = threading.Thread(target=recording.window)
                thread.start()
                thread.join()
        detail = recording.detail(Request("job", 5, 0, 12, (0,), "checkpoint"))
        in_steps = recording.detail(Request("job", 6, 0, 12, (0,)))
    name, file, _, us, called = detail.functions[0]
    assert (detail.number, name.rpartition(".")[2], file) == (5, "save", __file__)
    assert us >= 50_000 / 3 * 0.9
    assert next(iter(called)) == "time.sleep"
    assert not any(row[0].endswith("save") for row in in_steps.functions)


def test_a_rank_names_its_functions_beside_those_of_a_large_import():
    """Such as that of torch's compiler, which the first step of an optimizer imports."""

    def fan_out(depth):
        for function in fan if depth else ():
            function(depth - 1)

    def slow():
        time.sleep(0.01)

    def look():
        thread = threading.Thread(target=recording.window)
        thread.start()
        thread.join()

    # The same code under ten names: ten functions.
    fan = [
        FunctionType(fan_out.__code__.replace(co_firstlineno=i + 1), globals(), "f", None,
                     fan_out.__closure__)
        for i in range(10)
    ]  # fmt: skip
    with Profiler(gpu=False, skip_first=0) as prof:
        recording = Recording(run_of(prof).recorder, "job", 0, 2, "n0")
        prof.enter_phase("steps")
        look()
        fan_out(5)  # 100,000 contexts
        for _ in range(12):
            slow()
            prof.step()
        look()
        detail = recording.detail(Request("job", 5, 0, 12, (0,)))
    assert "slow" in [name.rpartition(".")[2] for name, *_ in detail.functions]


def test_a_rank_s_batches_are_not_taken_by_fastprof():
    def train():
        for _ in prof.loader(map(threading.Event().wait, [0.01] * 12)):
            prof.step()
            thread = threading.Thread(target=recording.window)
            thread.start()
            thread.join()

    with Profiler(gpu=False, skip_first=0) as prof:
        recording = Recording(run_of(prof).recorder, "job", 0, 2, "n0")
        prof.enter_phase("steps")
        train()
        detail = recording.detail(Request("job", 5, 0, 12, (0,)))
    name, _, _, _, called = detail.functions[0]
    assert name.rpartition(".")[2] == "train"
    assert next(iter(called)).rpartition(".")[2] == "wait"  # 3.10 knows no qualified names


def test_a_window_says_whether_the_training_thread_moves_between_its_steps():
    made = []

    def windows(recording, count):
        def look():
            wait_for_sleeping_threads()  # the training thread has reached join()
            made.extend(recording.window() for _ in range(count))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    with Profiler(gpu=False, skip_first=0) as prof:
        recording = Recording(run_of(prof).recorder, "job", 0, 2, "n0")
        prof.step()
        prof.enter_phase("validation")
        time.sleep(0.2)  # a time whose value in ns changes with each better scale of the clock
        for _ in range(3):  # the same place each time, but other calls between them
            sorted([2, 1])
            windows(recording, 1)
        windows(recording, 30)
        prof.leave_phase("validation")
    assert {of.phase for of in made} == {"validation"}
    assert [of.works for of in made] == [True] * 4 + [False] * 29


def test_a_section_that_only_waits_is_no_work_outside_of_sections(monkeypatch):
    monkeypatch.setattr("fastprof.ranks.exchange.recording._SECONDS", 0.1)  # a block per step
    with Profiler(gpu=False, skip_first=0) as prof:
        recording = Recording(run_of(prof).recorder, "job", 0, 2, "n0")
        prof.enter_phase("steps")
        for _ in range(20):
            with profile_section("data"):
                time.sleep(0.002)
            with profile_section("barrier"):
                time.sleep(0.01)
            prof.step()
        windows = []
        thread = threading.Thread(target=lambda: windows.append(recording.window()))
        thread.start()
        thread.join()
    rank = HeardRank(windows[0], 0.0, 0.0)
    add_blocks(rank, windows[0])
    run = run_in_blocks(rank, rank.size, sorted(rank.blocks))
    assert windows[0].waiting["(unaccounted)"] >= 10_000
    own = sections_of(run, "split", 0, 1000)
    # Neither has the 10 ms of the barrier; a busy machine lengthens both by a few ms.
    assert 2.0 <= own["data"] < 10.0
    assert own["(unaccounted)"] < 8.0


class Steps:
    """A recorder of steps of 100 ms; the waits on the GPU of the first ``known`` are known."""

    def __init__(self, steps, known, busy=None, since=0):
        self.steps, self.known, self.busy, self.since = steps, known, busy, since

    def window(self, first, plain=False):
        rows = range(max(0, first), self.steps)

        def ns(*of):
            return array("q", of).tobytes()

        return {
            "number": ns(*rows), "wall_ns": ns(*(100_000_000 for _ in rows)),
            "gpu_wait_ns": ns(*(i * 10**6 if self.since <= i < self.known else -1 for i in rows)),
            **{f"{n}_ns": ns(*(0 for _ in rows)) for n in ("cpu", "cpu_wait")},
            **{f"{n}_ns": ns(*(0 for _ in rows)) for n in ("communication", "autograd")},
            "sections": [("data", ns(*(50_000_000 for _ in rows)))], "waits": [], "open": [],
            "waiting": False, "phase": 0, "phases_ns": [0] * 9, "thread": 0,
            "last_event": 0, "measured": self.steps, "steps": self.steps, "gpu_busy": self.busy,
            "gpu_last": self.known - 1,
            "gpu_compute_ns": ns(*(7_000_000 if i < self.known else -1 for i in rows)),
        }  # fmt: skip

    def node_times(self):
        return None


def test_steps_whose_waits_on_the_gpu_are_not_known_yet_are_published_later():
    recorder = Steps(64, 50, busy=True)
    recording = Recording(recorder, "job", 1, 2, "n0")
    window = recording.window()
    assert (window.gpu_busy, window.gpu_compute) == (True, 7000)
    at = window.columns.index("gpu_wait")
    assert (window.steps, window.size) == (64, 4)
    assert list(window.blocks) == list(range(0, 48, 4))
    assert [row[at] for row in window.blocks.values()] == [i * 1000 + 1500 for i in window.blocks]
    recorder.steps, recorder.known = 100, 100
    window = recording.window()
    assert list(window.blocks) == list(range(0, 100, 4))
    recorder.steps, recorder.known = 110, 100  # none of the next ones is known yet
    assert list(recording.window().blocks) == list(range(0, 100, 4))
    # A wait cannot be longer than its step: the rest was between the steps.
    recorder.steps, recorder.known = 120, 120
    assert recording.window().blocks[112][at] == 100_000


@pytest.mark.parametrize(("steps", "known", "since"), [(400, 50, 0), (64, 0, 0), (64, 64, 9)])
def test_without_the_waits_of_all_steps_on_the_gpu_there_is_no_such_column(steps, known, since):
    """The records are much too late; no collective runs; the first one has just run."""
    window = Recording(Steps(steps, known, since=since), "job", 1, 2, "n0").window()
    assert "gpu_wait" not in window.columns
    assert max(window.blocks) == steps - 4
    assert window.gpu_busy is None


def test_functions_and_waits_are_known_in_a_program_with_many_contexts():
    """A Lightning script has over 50,000 of them before its first step."""
    space = {}
    inner = ", ".join(f"b{i}" for i in range(250))
    exec("\n".join(f"def b{i}(): pass" for i in range(250)), space)
    exec("\n".join(f"def a{i}():\n for b in ({inner}): b()" for i in range(250)), space)

    def work():
        time.sleep(0.01)

    with Profiler(gpu=False, skip_first=0) as prof:
        for i in range(250):
            space[f"a{i}"]()
        recorder = run_of(prof).recorder
        recording = Recording(recorder, "job", 0, 2, "n0")
        prof.enter_phase("steps")
        for i in range(12):
            with profile_section("data"):
                work()
            prof.step()
            if i % 3 == 2:
                thread = threading.Thread(target=recording.window)
                thread.start()
                thread.join()
        detail = recording.detail(Request("job", 5, 0, 12, (0,)))
        assert recorder.memory()["nodes"] > 60_000
        times = array("q", recorder.node_times())
        slept = max(range(len(times)), key=lambda i: times[i] if i else 0)
        assert recording._sections({slept}) == {slept: "data"}
    us = next(us for name, _, _, us, _ in detail.functions if name.endswith("work"))
    assert us >= 10_000


def test_of_a_million_contexts_that_all_took_time_few_are_looked_at():
    """The training waits for the GIL meanwhile."""
    end = array("q", [1]) * 10**6
    assert 250_000 < len(_spent(bytes(8 * 10**6), end.tobytes())) < 260_000
    assert _spent(end[:-1].tobytes(), end.tobytes()) == {10**6 - 1: 1}


def test_functions_of_a_delay_leave_out_the_steps_before_it():
    def work(seconds):
        time.sleep(seconds)

    with Profiler(gpu=False, skip_first=0) as prof:
        recording = Recording(run_of(prof).recorder, "job", 0, 2, "n0")
        prof.enter_phase("steps")
        for i in range(12):
            work(0.0 if i < 7 else 0.01)
            prof.step()
            if i % 3 == 2:
                thread = threading.Thread(target=recording.window)
                thread.start()
                thread.join()
        detail = recording.detail(Request("job", 5, 7, 12, (0,)))
    us = next(us for name, _, _, us, _ in detail.functions if name.endswith("work"))
    assert us >= 10_000  # per step; six sixths, not five


@pytest.mark.slow
def test_a_killed_rank_is_told_and_the_others_go_on(tmp_path):
    with Ranks(tmp_path, 3, 300, 0.0) as ranks:
        wait_until_heard(tmp_path, [2])
        ranks.processes[2].send_signal(signal.SIGKILL)
        read = ranks.wait_for("sent no heartbeat")
        ranks.finish()
        said = ranks.end()
    assert [p.returncode for p in ranks.processes] == [0, 0, -9], said
    (line,) = [line for line in (read + said[0]).splitlines() if "sent no heartbeat" in line]
    assert line.startswith("Rank 2 ")
    assert re.search(r"last seen in (data|barrier), (decode|code outside of functions) ", line)


@pytest.mark.slow
def test_a_stopped_rank_is_told_as_silent_and_heard_again(tmp_path):
    with Ranks(tmp_path, 2, 300, 0.0) as ranks:
        wait_until_heard(tmp_path, [1])
        ranks.processes[1].send_signal(signal.SIGSTOP)
        silent = ranks.wait_for("has sent no heartbeat for")
        ranks.processes[1].send_signal(signal.SIGCONT)
        ranks.wait_for("has a heartbeat again.")
        ranks.finish()
        said = ranks.end()
    assert [p.returncode for p in ranks.processes] == [0, 0], said
    assert "Rank 1 (host " in silent


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
        wait_until_heard(tmp_path, [1])
        shutil.rmtree(tmp_path / "meet")
        said = ranks.end()
    assert [p.returncode for p in ranks.processes] == [0, 0], said
    for text in said:
        assert text.count("Ranks are not compared any more: FileNotFoundError") == 1


@pytest.mark.slow
def test_hostile_files_are_ignored_and_said_once(tmp_path):
    with Ranks(tmp_path, 2, 5, 0.0) as ranks:
        folder = wait_until_heard(tmp_path, [1])
        for key in ("window-1", "request", "detail-1"):
            for _ in range(20):
                (folder / key).write_bytes(os.urandom(3000))
                time.sleep(0.02)
        said = ranks.end()
    assert [p.returncode for p in ranks.processes] == [0, 0], said
    assert said[0].count("Values that other ranks published were ignored") <= 1
    assert "not compared" not in said[0] + said[1]


def test_metrics_of_ranks_reach_the_logger_of_rank_0(tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "PUBLISH_S", 0.1)
    monkeypatch.setattr(pace, "LOOK_S", 0.05)
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


@pytest.mark.parametrize(
    ("rank", "ranks", "expected"), [(0, "auto", 1), (1, "auto", 0), (1, True, 1), (0, False, 0)]
)
def test_where_ranks_cannot_meet_is_said_by_rank_0_and_by_those_who_asked_for_it(
    monkeypatch, rank, ranks, expected
):
    for name in ("MASTER_ADDR", "MASTER_PORT", "FASTPROF_RANKS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Profiler(functions=False, gpu=False, ranks=ranks) as prof:
        prof.step()
    assert len([note for note in prof.report().notes if "FASTPROF_RANKS_DIR" in note]) == expected


class Place:
    """A channel whose behaviour a test defines."""

    def __init__(self, error=None, since=0):
        self.error, self.since, self.gets, self.puts = error, since, 0, []
        self.ended, self.closed = False, 0

    def put(self, key, value):
        self.puts.append(key)
        if key.startswith("window-"):
            self.ended = decode(value).ended
        if self.error is not None and len(self.puts) > self.since:
            raise self.error

    def get(self, keys):
        self.gets += keys == [REQUEST]
        return {}

    def close(self, *, last):
        self.closed += 1


def run_in(place, monkeypatch, caplog, *, rank=1, seconds=1.0, asks=False):
    """Be a rank of two that meet in ``place``; return what was logged, and the report."""
    find = place if callable(place) else lambda job, world: place
    monkeypatch.setattr(live, "find_channel", find)
    monkeypatch.setattr(pace, "LOOK_S", 0.1)
    for name in ("PUBLISH_S", "RETRY_S"):
        monkeypatch.setattr(pace, name, 0.2)
    for name, value in {
        "RANK": rank,
        "WORLD_SIZE": 2,
        "MASTER_ADDR": "a",
        "MASTER_PORT": 1,
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("FASTPROF_RANKS_DIR", raising=False)
    with Profiler(functions=False, gpu=False) as prof:
        if asks:
            run_of(prof).ranks.ask(wait=lambda: True)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(0.01)
            prof.step()
    return caplog.text, prof.report()


def test_a_rank_looks_for_requests_now_and_then(monkeypatch, caplog):
    place = Place()
    run_in(place, monkeypatch, caplog)
    assert 2 <= place.gets <= 11  # and not every 50 ms


def test_a_store_that_is_away_for_a_while_is_used_again(monkeypatch, caplog):
    place = Place(ConnectionResetError("away"), since=1)
    heal = threading.Timer(0.6, setattr, (place, "error", None))
    heal.start()
    said, report = run_in(place, monkeypatch, caplog, rank=0, seconds=1.8)
    heal.join()
    assert len(place.puts) >= 5
    assert "compared" not in said + " ".join(report.notes)


def test_a_store_that_stays_away_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr(pace, "LOST_S", 0.3)
    said, report = run_in(Place(TimeoutError("away"), since=1), monkeypatch, caplog, seconds=2.0)
    assert said.count("Ranks are not compared any more: TimeoutError: away") == 1
    assert [note for note in report.notes if "not compared any more" in note]


@pytest.mark.parametrize("error", [Ended(), ConnectionResetError("gone")])
def test_what_ends_with_the_job_is_not_told(monkeypatch, caplog, error):
    said, report = run_in(Place(error, since=2), monkeypatch, caplog, seconds=0.8)
    assert "compared" not in said + " ".join(report.notes)


def test_a_rank_whose_thread_fails_does_not_say_that_it_has_ended(monkeypatch, caplog):
    place = Place(RuntimeError("odd"), since=1)
    said, _ = run_in(place, monkeypatch, caplog, seconds=0.8)
    assert "Ranks are not compared any more: RuntimeError: odd" in said
    assert (place.puts, place.ended, place.closed) == (["window-1"] * 2, False, 1)


@pytest.mark.parametrize("fails", ["_hear_out", "_all_ended"])
def test_a_rank_says_that_it_has_ended_whatever_fails_at_the_end(monkeypatch, caplog, fails):
    def fail(*args):
        raise ValueError("odd")

    monkeypatch.setattr(Talk, fails, fail)
    monkeypatch.setattr(pace, "LAST_S", 0.5)
    place = Place()
    run_in(place, monkeypatch, caplog, rank=0, seconds=0.4, asks=True)
    deadline = time.monotonic() + 20
    while not place.closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (place.ended, place.closed) == (True, 1)


def test_what_rank_0_has_heard_is_told_although_the_place_then_hangs(tmp_path, monkeypatch):
    hangs = threading.Event()
    monkeypatch.setattr(DirectoryChannel, "close", lambda self, last: hangs.wait(30))
    monkeypatch.setattr(pace, "LAST_S", 0.3)
    monkeypatch.setattr(pace, "PATIENCE_S", 1.0)
    folder = alone(monkeypatch, tmp_path)
    prof = started_at(folder)
    prof.stop()
    job = run_of(prof).ranks.job()
    hangs.set()
    assert [row.rank for row in job.rows] == [0]


def test_a_store_that_is_none_is_told_at_the_end(monkeypatch, caplog):
    def find(job, world):
        raise NotAStoreError("another program listens at its port")

    said, report = run_in(find, monkeypatch, caplog, seconds=0.4)
    assert "compared" not in said
    (note,) = [note for note in report.notes if "compared" in note]
    assert note == (
        "Ranks were not compared while the job ran: the store at a:1 (MASTER_ADDR and MASTER_PORT) "
        "could not be used: another program listens at its port. FASTPROF_RANKS_DIR can name a "
        "directory to use instead."
    )


FROZEN = """
import os, sys, time, types
torch, distributed = types.ModuleType("torch"), types.ModuleType("torch.distributed")
torch.__version__, distributed.is_initialized = "2.13.0", lambda: True
sys.modules.update({"torch": torch, "torch.distributed": distributed})
from fastprof import Profiler, profile_section
from fastprof.ranks.blocks import HeardRank, add_blocks, run_in_blocks
from fastprof.ranks.cause import sections_of
from fastprof.ranks.exchange import live, pace, tcpstore
pace.LOOK_S = pace.PUBLISH_S = pace.RETRY_S = 0.01
tcpstore.TIMEOUT_S = %s
prof = Profiler(gpu=False).start()
for _ in range(30):
    time.sleep(0.01); prof.step()

class Late:
    # Lets other threads run when the interpreter is nearly gone.
    def __del__(self, sleep=time.sleep):
        sleep(0.3)

late = Late()
%s
"""


@pytest.mark.parametrize("timeout_s", [1.1, 30.0], ids=["given-up-meanwhile", "waited-for"])
@pytest.mark.parametrize(
    ("end", "status"), [("prof.stop(); sys.exit(3)", 3), ("sys.exit(3)", 3), ("os._exit(4)", 4)]
)
def test_a_store_that_freezes_does_not_hold_up_the_end(timeout_s, end, status):
    answered = []

    def serve():
        connection, _ = listener.accept()
        with connection:
            while asked := connection.recv(1 << 16):
                answered.append(asked)
                if len(answered) > 4:
                    silent.wait(30)
                    return
                connection.sendall(asked[-4:] if asked[0] in b"\x00\x01" else b"\x01")

    silent = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, daemon=True).start()
    env = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    env["MASTER_PORT"] = str(listener.getsockname()[1])
    program = FROZEN % (timeout_s, end)
    began = time.monotonic()
    result = run_child(program, env=env)
    took = time.monotonic() - began
    silent.set()
    listener.close()
    result.check(returncode=status)
    assert len(answered) == 5
    assert took < 20.0  # the thread would wait for 30


def test_ranks_of_another_value_are_refused():
    with pytest.raises(ValueError, match="ranks is 1, expected one of"):
        Profiler(ranks=1)


def test_a_forked_child_has_no_part_in_it(tmp_path):
    result = run_child(
        f"""
import os, time
os.environ.update(RANK="1", WORLD_SIZE="2", FASTPROF_RANKS_DIR={str(tmp_path)!r})
from fastprof import Profiler, profile_section
from fastprof.ranks.blocks import HeardRank, add_blocks, run_in_blocks
from fastprof.ranks.cause import sections_of
from fastprof.ranks.exchange import live, pace
pace.LOOK_S = pace.PUBLISH_S = 0.05
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
from fastprof import Profiler, profile_section
from fastprof.ranks.blocks import HeardRank, add_blocks, run_in_blocks
from fastprof.ranks.cause import sections_of
from fastprof.ranks.exchange import live, pace
pace.LOOK_S = pace.PUBLISH_S = 0.01
prof = Profiler(functions=False, gpu=False).start()
for _ in range(20):
    time.sleep(0.005); prof.step()
{how}
"""
    )
    result.check(returncode=3)


def alone(monkeypatch, folder, publish_s=0.2):
    monkeypatch.setattr(pace, "PUBLISH_S", publish_s)
    monkeypatch.setattr(pace, "LOOK_S", 0.05)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "FASTPROF_RANKS_DIR": folder}.items():
        monkeypatch.setenv(name, str(value))
    return folder / f"fastprof-{job_mark(2)}"


def started_at(folder):
    """Start rank 0 and let it train until its first window stands in ``folder``."""
    prof = Profiler(functions=False, gpu=False).start()
    run_of(prof).ranks.ask(wait=lambda: True)
    while not (folder / "window-0").exists():
        time.sleep(0.01)
        prof.step()
    return prof


def test_rank_0_hears_the_others_out_if_it_is_to_say_how_they_fared(tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "LAST_S", 20.0 * time_scale())
    folder = alone(monkeypatch, tmp_path)
    prof = started_at(folder)
    began = time.monotonic()
    prof.stop()
    assert time.monotonic() - began < 5.0  # the program continues
    assert not decode((folder / "window-0").read_bytes()).ended
    window = RankWindow(job_mark(2), 1, 2, "n1", 1, 5, ended=True)
    (folder / "window-1").write_bytes(encode(window))
    job = run_of(prof).ranks.job()
    assert [(row.rank, row.state) for row in job.rows] == [(0, "ended"), (1, "ended")]
    assert job.verdict.startswith("It is not known whether a rank is late: too few steps")
    assert not folder.exists()


def test_rank_0_waits_for_a_rank_that_does_not_end_a_few_seconds_only(tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "LAST_S", 0.3)
    folder = alone(monkeypatch, tmp_path)
    prof = started_at(folder)
    prof.stop()
    assert [row.rank for row in run_of(prof).ranks.job().rows] == [0]
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
    assert not run_of(prof).ranks.owns


def step_until_it_writes(prof, folder):
    """End steps until this process writes the rank's window, for at most 20 s."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        time.sleep(0.02)
        prof.step()
        if decode((folder / "window-0").read_bytes()).process == os.getpid():
            break


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
            step_until_it_writes(prof, folder)
    finally:
        other.kill()
        other.wait()
    there = decode((folder / "window-0").read_bytes())
    assert (there.process, there.parent) == (os.getpid(), os.getppid())


def test_a_window_that_has_the_number_of_the_launcher_does_not_silence_a_rank(
    tmp_path, monkeypatch
):
    """A dead process left a window; by now this process's parent has its number."""
    folder = alone(monkeypatch, tmp_path)
    folder.mkdir()
    window = RankWindow(
        job_mark(2), 0, 2, os.uname().nodename, 7, 7, process=os.getppid(), parent=1
    )
    (folder / "window-0").write_bytes(encode(window))
    with Profiler(functions=False, gpu=False) as prof:
        step_until_it_writes(prof, folder)
    assert run_of(prof).ranks.owns
    assert decode((folder / "window-0").read_bytes()).process == os.getpid()


class Shared(Place):
    """A place shared by two processes of one rank."""

    def __init__(self):
        super().__init__()
        self.values = {}

    def put(self, key, value):
        self.values[key] = value

    def get(self, keys):
        return {key: self.values[key] for key in keys if key in self.values}


@pytest.mark.parametrize("late_number", [False, True])
def test_of_two_processes_that_both_write_as_one_rank_one_makes_way(monkeypatch, late_number):
    """The first one was stopped, the second took its place, and the first one continues."""
    place = Shared()
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    numbers = sorted((os.getpid(), other.pid), reverse=late_number)
    try:
        talks = []
        for number in numbers:
            with monkeypatch.context() as patch:
                patch.setattr(os, "getpid", lambda number=number: number)
                talk = Talk(place, job_mark(2), Unrecorded(), Known(), print)
                talk.owns_number = number
                talks.append(talk)
        first, second = talks
        wrote = []
        for _ in range(6):
            for talk in (first, second):
                with monkeypatch.context() as patch:
                    patch.setattr(os, "getpid", lambda talk=talk: talk.owns_number)
                    patch.setattr(os, "getppid", lambda: 1)
                    # Each process has written before, as after a stop.
                    talk._publish_at = talk._publish_at or 1.0
                    if talk.owns and talk._is_ours(0.0):
                        talk._publish(talk._recording.window())
                        wrote.append(talk)
    finally:
        other.kill()
        other.wait()
    assert [talk.owns for talk in talks].count(True) == 1
    assert len(set(wrote[-4:])) == 1


def test_a_hostile_number_of_ranks_takes_no_more_memory_than_a_thousand(monkeypatch):
    class Counts(Shared):
        asked, most = 0, 0

        def get(self, keys):
            self.asked += len(keys)
            self.most = max(self.most, len(keys))
            return super().get(keys)

    place = Counts()
    monkeypatch.setattr(Known, "world_size", 999_999_999)
    talk = Talk(place, job_mark(2), Unrecorded(), Known(), print)
    talk.go_on()
    talk._judge_at = 0.0
    talk.go_on()
    assert 0 < place.asked <= 2048
    place.asked = 0
    talk._publish(talk._recording.window(ended=True))
    assert not talk._all_ended()
    talk._hear_out(talk._judge, talk._recording.window(), until=0.0)
    assert place.asked <= 2048
    assert place.most <= 1024


class Unrecorded:
    """A recorder without data."""

    def window(self, since):
        return None


class Known:
    rank, world_size = 0, 2


def test_the_ranks_stand_after_the_report_that_the_exit_prints(tmp_path):
    result = run_child(
        f"""
import os, time
os.environ.update(RANK="0", WORLD_SIZE="2", FASTPROF_RANKS_DIR={str(tmp_path)!r})
from fastprof import Profiler, profile_section
from fastprof.ranks.blocks import HeardRank, add_blocks, run_in_blocks
from fastprof.ranks.cause import sections_of
from fastprof.ranks.live.window import RankWindow, encode
from fastprof.ranks.exchange import live, pace
from fastprof.ranks.exchange.find import job_mark
from fastprof.ranks.exchange.recording import Recording
pace.LOOK_S = pace.PUBLISH_S = 0.05
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
    assert result.stderr.startswith("child.py: ")
    told = "\n\nRanks: 2 of 2, in the last 10 s of steps. It is not known whether a rank is late: "
    assert told in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("end", "status", "waits_s", "least_s", "most_s"),
    [
        ("sys.exit(0)", 0, 2.0, 2.0, 20.0),
        ("sys.exit(3)", 3, 2.0, 2.0, 20.0),
        ("1 / 0", 1, 40.0, 0.0, 20.0),
    ],
)
def test_how_long_a_program_that_ends_waits_for_the_other_ranks(
    tmp_path, end, status, waits_s, least_s, most_s
):
    """As long as they need at the end; its own status is unknown, but not an exception."""
    result = run_child(
        f"""
import atexit, os, sys, time
ended = []
# Called after what fastprof does at the end.
atexit.register(lambda: print("took", time.monotonic() - ended[0]))
import fastprof
from fastprof.session import run
run.UNKNOWN_END_S = {waits_s}
folder = os.environ["FASTPROF_RANKS_DIR"]
while not any("window-0" in names for *_, names in os.walk(folder)):
    time.sleep(0.01)
ended.append(time.monotonic())
{end}
""",
        env={"RANK": "0", "WORLD_SIZE": "2", "FASTPROF_RANKS_DIR": str(tmp_path), "FASTPROF": "1"},
    ).check(returncode=status)
    took = float(result.stdout.split("took ")[1])
    assert least_s <= took < most_s


def test_a_run_that_ends_at_once_is_not_said_to_lack_torch_distributed(tmp_path, monkeypatch):
    from fastprof.ranks.exchange import pace

    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "FASTPROF_RANKS_DIR": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(pace, "LOOK_S", 60.0)
    with Profiler(functions=False, gpu=False, ranks=True) as prof:
        prof.step()
    assert "it ended before they met" in prof.report().to_text(full=True)
