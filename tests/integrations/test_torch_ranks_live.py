"""Real torchrun jobs: ranks use the job's own store, never on the training thread."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys

import pytest
from helpers import GUARD, child_env, time_scale

pytest.importorskip("torch.distributed")

PROGRAM = """
import os, signal, sys, threading, time
import torch
import torch.distributed as dist
from torch import nn
from fastprof import Profiler, profile_section
import fastprof.ranks.blocks as blocks
import fastprof.ranks.live.heard as heard
import fastprof.ranks.live.judge as judge
import fastprof.ranks.exchange.live as live
import fastprof.ranks.exchange.pace as pace
import fastprof.ranks.exchange.recording as recording

# As with windows of ten seconds, but five times as fast.
pace.PUBLISH_S, pace.LOOK_S = 1.0, 0.2
heard.SILENT_S = judge.SILENT_S = 3.0
blocks.WINDOW_S = recording._SECONDS = 2.0

rank, what = int(os.environ["RANK"]), sys.argv[1]
if what == "restart":
    # In one store gloo may find the address of a rank that has ended, and fails or waits for it.
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.PrefixStore(
        os.environ["TORCHELASTIC_RESTART_COUNT"], dist.TCPStore(*place, is_master=False)
    )
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=int(os.environ["WORLD_SIZE"])
    )
else:
    dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def decode(step):
    time.sleep(0.03 if rank == 1 and what == "late" else 0.01)
    if what == "hang" and rank == 1 and step == 60:
        until = time.monotonic() + 120
        while not os.path.exists("told") and time.monotonic() < until:
            time.sleep(0.1)

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if rank == 1 and what == "backward":
            time.sleep(0.02)
        return grad

callers = set()
def watched(function):
    def call(*args, **kwargs):
        callers.add(threading.get_ident())
        return function(*args, **kwargs)
    return call

with Profiler(gpu=False) as prof:
    for name in ("is_initialized", "get_rank", "get_world_size", "all_reduce", "barrier",
                 "new_group", "all_gather", "broadcast", "TCPStore", "PrefixStore"):
        setattr(dist, name, watched(getattr(dist, name)))
    for name in ("set", "get", "multi_get", "check", "add", "wait"):
        setattr(dist.Store, name, watched(getattr(dist.Store, name)))
    for step in range(int(sys.argv[2]) if len(sys.argv) > 2 else 250):
        if what == "restart" and rank == 1 and step == 60:
            if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                os._exit(7)
        with profile_section("data"):
            decode(step)
        with profile_section("forward"):
            loss = Slow.apply(model(torch.ones(8, 64))).sum()
            time.sleep(0.02)
        with profile_section("backward"):
            loss.backward()
        with profile_section("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        prof.step()
        if rank == 0 and step == 60:
            print("at step 60", flush=True)
    began = time.monotonic()
print(f"rank {rank} stopped in {time.monotonic() - began:.3f} s", flush=True)
print(f"rank {rank} called from training: {threading.get_ident() in callers}", flush=True)
print(f"rank {rank} called from elsewhere: {bool(callers - {threading.get_ident()})}", flush=True)
notes = [note for note in prof.report().notes if "compared" in note]
total = float(sum(p.sum() for p in model.parameters()))
print(f"rank {rank} result {total:.9f} {notes}", flush=True)
dist.destroy_process_group()
"""


def environment(**more):
    # torchrun resolves this machine's name, which the tests' guard refuses.
    paths = [path for path in sys.path if path != str(GUARD)]
    env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(paths), **more}
    return child_env(env, guard=False)


def start(tmp_path, what, *options, ranks=2, steps=250, **env):
    """Start a job by torchrun."""
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", *options,
         "--nproc-per-node", str(ranks), str(program), what, str(steps)],
        env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        cwd=tmp_path,
    )  # fmt: skip


def said_by(tmp_path, what, *options, ranks=2, steps=250):
    job = start(tmp_path, what, *options, ranks=ranks, steps=steps)
    said, _ = job.communicate(timeout=150 * time_scale())
    assert job.returncode == 0, said[-4000:]
    return check(said, ranks)


def check(said, ranks=2):
    """Check that the training thread has called nothing; return the sentences."""
    for rank in range(ranks):
        assert f"rank {rank} called from training: False" in said, said[-4000:]
        assert f"rank {rank} called from elsewhere: True" in said
        assert re.search(rf"rank {rank} stopped in ([\d.]+) s", said)
        assert re.search(rf"rank {rank} result \S+ \[\]", said), said[-4000:]
    return [line for line in said.splitlines() if line.startswith(("Rank", "No step", "Value"))]


def results(said):
    return re.findall(r"rank . result (\S+)", said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "where"),
    [
        ("late", r": data \+[\d.]+ ms, in decode \(train\.py:"),
        ("backward", r": backward \+[\d.]+ ms, in Slow\.backward \(train\.py:"),
    ],
)
def test_a_late_rank_is_told_while_the_job_runs(tmp_path, what, where):
    late = [line for line in said_by(tmp_path, what) if " is late by " in line]
    assert len(late) == 1
    assert late[0].startswith("Rank 1 ")
    assert re.search(where, late[0])


@pytest.mark.slow
def test_a_rank_that_hangs_is_told_with_where_it_stands(tmp_path):
    place = r"Rank 1 \(host \S+\) is in data, decode \(train\.py:\d+\), and 2 others wait\."
    told = 0
    with start(tmp_path, "hang", ranks=3, steps=120) as job:
        said = ""
        for line in job.stdout:
            said += line
            if "No step has ended" in line and re.search(place, line):
                told += 1
                (tmp_path / "told").touch()  # the hang ends
    assert job.returncode == 0, said[-4000:]
    check(said, 3)
    assert told == 1, said[-4000:]


@pytest.mark.slow
def test_rank_0_may_have_the_store_without_torchrun(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    jobs = [
        subprocess.Popen(
            [sys.executable, str(program), "late"],
            env=environment(
                RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port
            ),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    said = [job.communicate(timeout=150 * time_scale())[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    (line,) = [line for line in check("".join(said)) if " is late by " in line]
    assert line.startswith("Rank 1 ")


@pytest.mark.slow
def test_a_job_that_is_restarted_does_not_see_what_was_there_before(tmp_path):
    job = start(tmp_path, "restart", "--max-restarts", "1", steps=150)
    said, _ = job.communicate(timeout=150 * time_scale())
    assert job.returncode == 0, said[-4000:]
    said = check(said, 2)
    assert [line for line in said if "silent" in line or "ignored" in line] == []


@pytest.mark.slow
def test_a_store_that_is_stopped_or_killed_changes_nothing(tmp_path):
    job = start(tmp_path, "", steps=150, FASTPROF_RANKS="0")
    said, _ = job.communicate(timeout=150 * time_scale())
    assert job.returncode == 0, said[-4000:]
    expected = results(said)
    for how in (signal.SIGSTOP, signal.SIGKILL):
        with start(tmp_path, "", steps=150) as job:
            lines = []
            for line in job.stdout:
                lines.append(line)
                if line == "at step 60\n":
                    job.send_signal(how)
                if len(results("".join(lines))) == 2:
                    break
            job.send_signal(signal.SIGCONT)
            said = "".join(lines) + job.stdout.read()
        assert job.returncode == (0 if how == signal.SIGSTOP else -9)
        assert results(said) == expected
        assert [line for line in check(said) if "silent" in line] == []
