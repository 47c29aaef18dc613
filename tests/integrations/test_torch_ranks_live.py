"""Real torchrun jobs: ranks meet in the job's own store, and the training thread never does."""

from __future__ import annotations

import re
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
import fastprof.report.ranks_blocks as blocks
import fastprof.report.ranks_live as judge
import fastprof.session.ranks.live as live
import fastprof.session.ranks.recording as recording

# As with windows of ten seconds, but five times as fast.
live._PUBLISH_S, live._LOOK_S = 1.0, 0.2
judge.SILENT_S = 3.0
blocks.WINDOW_S = recording._SECONDS = 2.0

rank, what = int(os.environ["RANK"]), sys.argv[1]
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def decode(step):
    time.sleep(0.03 if rank == 1 and what == "late" else 0.01)
    if what == "hang" and rank == 1 and step == 60:
        time.sleep(6)

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
    for step in range(250):
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
    began = time.monotonic()
print(f"rank {rank} stopped in {time.monotonic() - began:.3f} s", flush=True)
print(f"rank {rank} called from training: {threading.get_ident() in callers}", flush=True)
print(f"rank {rank} called from elsewhere: {bool(callers - {threading.get_ident()})}", flush=True)
dist.destroy_process_group()
"""


def said_by(tmp_path, what, ranks=2):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    # torchrun looks up this machine's name, which the guard of the tests refuses.
    paths = [path for path in sys.path if path != str(GUARD)]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         "--nproc-per-node", str(ranks), str(program), what],
        env=child_env(
            {"OMP_NUM_THREADS": "1", "FASTPROF_RANKS": "1", "PYTHONPATH": ":".join(paths)},
            guard=False,
        ),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150 * time_scale(),
        cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    for rank in range(ranks):
        assert f"rank {rank} called from training: False" in done.stdout
        assert f"rank {rank} called from elsewhere: True" in done.stdout
        stopped = re.search(rf"rank {rank} stopped in ([\d.]+) s", done.stdout)
        assert stopped is not None
    return [line for line in done.stdout.splitlines() if line.startswith(("Rank", "No step"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "where"),
    [("late", ": data, decode (train.py:"), ("backward", ": backward, Slow.backward (train.py:")],
)
def test_a_late_rank_is_told_while_the_job_runs(tmp_path, what, where):
    late = [line for line in said_by(tmp_path, what) if " is late by " in line]
    assert len(late) == 1
    assert late[0].startswith("Rank 1 ")
    assert where in late[0]


@pytest.mark.slow
def test_a_rank_that_hangs_is_told_with_where_it_stands(tmp_path):
    told = [line for line in said_by(tmp_path, "hang", ranks=3) if "No step has ended" in line]
    assert len(told) == 1
    assert re.search(
        r"Rank 1 \(host \S+\) stands in data, decode \(train\.py:\d+\), and 2 others wait\.",
        told[0],
    )
