"""Each step shows the time of torch's functions that wait for other ranks."""

from __future__ import annotations

import pytest
from helpers import run_child

pytest.importorskip("torch.distributed")

PROGRAM = """
import time
import torch
import torch.distributed as dist
import fastprof

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.02)
        return grad

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(200, 200, requires_grad=True)
with fastprof.Profiler(skip_first=0) as prof:
    for _ in range(4):
        loss = (Slow.apply(x) @ x).sum()
        loss.backward()
        dist.all_reduce(torch.ones(10))
        dist.barrier()
        prof.step()
series = prof.snapshot().steps.series
assert len(series.autograd_ns) == len(series.communication_ns) == 4, series
for whole, engine, waiting in zip(series.wall_ns, series.autograd_ns, series.communication_ns):
    assert 0 < engine <= whole - 20_000_000, (whole, engine)
    assert 0 < waiting < whole, (whole, waiting)
print("ok")
"""


def test_a_step_tells_autograd_without_its_python_functions_and_communication():
    made = run_child(PROGRAM)
    assert made.end == "ok", made.stderr


def test_a_step_tells_the_wait_for_a_collective_that_is_an_operator():
    """DTensor, tensor parallelism and FSDP2 call collectives so."""
    program = """
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import fastprof

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
with fastprof.Profiler(skip_first=0) as prof:
    for _ in range(4):
        functional.all_reduce(torch.ones(10), "sum", dist.group.WORLD) + 1
        prof.step()
series = prof.snapshot().steps.series
assert len(series.communication_ns) == 4 and min(series.communication_ns) > 0, series
print("ok")
"""
    made = run_child(program)
    assert made.end == "ok", made.stderr


def test_a_run_knows_whether_anomaly_detection_is_on():
    program = """
import torch
import fastprof
for mode in (True, False):
    torch.autograd.set_detect_anomaly(mode)
    with fastprof.Profiler(skip_first=0) as prof:
        prof.step()
    print(prof.snapshot().meta.get("torch_anomaly_mode"))
print("ok")
"""
    made = run_child(program)
    assert made.end == "ok", made.stderr
    assert made.stdout.split()[:2] == ["True", "None"]
