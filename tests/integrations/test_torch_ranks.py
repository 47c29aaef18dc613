"""Two real ranks that exchange gradients: the report finds the slow loader (row S1-22)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fastprof.results.ranks import merge
from helpers import GUARD, child_env, run_together, time_scale

pytest.importorskip("torch.distributed")

PROGRAM = """
import sys, time
import torch
from torch import nn
import torch.distributed as dist
import fastprof
from fastprof import profile_section

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
)
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with fastprof.Profiler(functions=False, gpu=False, output=f"{folder}/run.fprof") as prof:
    for _ in range(30):
        with profile_section("data"):
            time.sleep(0.1 if rank == 1 else 0.005)
        with profile_section("forward"):
            loss = model(torch.ones(2, 4)).sum()
        with profile_section("backward"):
            loss.backward()
        with profile_section("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        prof.step()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_s1_22_the_late_one_of_two_real_ranks_is_named_with_its_section(tmp_path: Path) -> None:
    env = child_env({"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}, guard=False)
    run_together([[sys.executable, "-c", PROGRAM, rank, str(tmp_path)] for rank in "01"], env)
    made = merge(tmp_path.glob("rank*_run.fprof"))
    assert [(row.rank, row.world_size, row.steps) for row in made.rows] == [(0, 2, 27), (1, 2, 27)]
    assert {row.host for row in made.rows} == {os.uname().nodename}
    late = made.straggler
    assert late is not None
    assert (late.rank, late.section) == (1, "data")
    assert [rank for rank, _ in late.waits] == [0]
    assert late.section_ms is not None
    assert late.section_ms >= 100  # the sleep


LAUNCHED = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {total.item():.0f} {sys.argv[1:]}", flush=True)
dist.destroy_process_group()
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("status", [0, 3])
def test_nproc_starts_the_ranks_of_a_job(tmp_path: Path, status: int) -> None:
    (tmp_path / "train.py").write_text(LAUNCHED)
    # torch's launcher resolves this machine's name, which the tests' guard refuses.
    paths = [path for path in sys.path if path != str(GUARD)]
    done = subprocess.run(
        [sys.executable, "-m", "fastprof", "run", "--nproc", "2", "-o", "out", "train.py",
         "--status", str(status)],
        env=child_env({"PYTHONPATH": ":".join(paths)}, guard=False), cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120 * time_scale(),
    )  # fmt: skip
    assert (done.returncode == 0) == (status == 0), done.stdout
    for rank in (0, 1):
        assert f"rank {rank} of 2 ['--status', '{status}']" in done.stdout
        if status == 0:  # if a job fails, the launcher ends its other ranks
            assert (tmp_path / f"out/rank{rank}_train_profile.fprof").exists()
