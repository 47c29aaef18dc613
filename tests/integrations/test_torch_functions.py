"""torch's C functions in the table of functions."""

from __future__ import annotations

import pytest
from fastprof import Profiler
from fastprof.integrations import torch_loop

torch = pytest.importorskip("torch")


def test_functions_of_torch_have_the_names_that_users_write() -> None:
    # Two are methods of the type torch._C._VariableFunctionsClass, one of torch._C.TensorBase.
    parameter = torch.nn.Parameter(torch.ones(2))
    with Profiler(functions=True) as profiler:
        torch.relu(torch.stack([torch.ones(2)]))
        parameter.detach()
        torch.ones(2).detach()
    calls = {row.qualname: row.calls for row in profiler.report().functions}
    assert {"torch.stack", "torch.relu"} <= set(calls)
    assert calls["Tensor.detach"] == 2
    assert not any("VariableFunctions" in name or "Base" in name for name in calls)


def test_fastprofs_clock_readings_are_no_functions_of_the_program() -> None:
    model = torch.nn.Linear(4, 2)
    with Profiler(functions=True, skip_first=0) as profiler, torch_loop.attach(profiler):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    names = {row.qualname for row in profiler.report().functions}
    assert any("run_backward" in name for name in names)
    # torch reads time.perf_counter while it imports parts of itself.
    assert not names & {"time.thread_time_ns", "time.perf_counter_ns"}
