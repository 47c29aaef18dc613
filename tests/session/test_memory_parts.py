"""Row S1-19: the parts of GPU memory, with torch's own optimizers and a fake allocator."""

from __future__ import annotations

import sys
import types

import fastprof
import pytest
from fastprof.errors import SnapshotError
from fastprof.results.report import build_report
from fastprof.session.gpu import memory_parts
from fastprof.session.gpu.memory import MemorySampler
from fastprof.session.gpu.memory_parts import OptimizerMemory, sizes
from fastprof.snapshot import Snapshot
from fastprof.tables.report import all_tables

torch = pytest.importorskip("torch")
GIB = 1 << 30


class Allocator:
    """``torch.cuda`` of a device with one allocator that reports only the peak."""

    peak = 100_000

    def current_device(self):
        return 0

    def get_device_properties(self, device):
        return types.SimpleNamespace(total_memory=80 * GIB)

    def memory_stats(self, device):
        return {"allocated_bytes.all.current": 40_000, "allocated_bytes.all.peak": self.peak}


@pytest.fixture
def cuda(monkeypatch):
    """Let CPU tensors count as GPU tensors."""
    monkeypatch.setattr(MemorySampler, "_cuda", staticmethod(Allocator))
    monkeypatch.setattr(memory_parts, "_is_cpu_build", lambda torch: False)
    monkeypatch.setattr(memory_parts, "_is_on", lambda tensor, device: device == 0)


def model_and(optimizer=torch.optim.AdamW, **options):
    model = torch.nn.Linear(100, 20)  # 2020 numbers of 4 bytes
    return model, optimizer(model.parameters(), **options)


def train(model, optimizer, steps=5, **options):
    with fastprof.Profiler(functions=False, gpu=False, **options) as prof:
        for _ in range(steps):
            model(torch.ones(3, 100)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()
    return prof


def hooks():
    return dict(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks)


def test_s1_19_the_four_parts_add_up_to_what_is_allocated(cuda):
    before = hooks()
    prof = train(*model_and())
    assert hooks() == before
    snapshot = prof.snapshot()
    assert snapshot.memory.parts[:2] == (8080, 8080)
    assert Snapshot.from_dict(snapshot.to_dict()).memory == snapshot.memory
    report = prof.report()
    parts, memory = report.memory.parts, report.memory
    total = parts.parameters + parts.gradients + parts.optimizer_state + parts.activations
    assert total == memory.peak_allocated == 100_000
    table = next(t for t in all_tables(report) if t.title == "GPU memory at its peak")
    assert [row[0] for row in table.rows] == [
        "parameters", "gradients", "optimizer state", "activations and other", "allocated",
    ]  # fmt: skip
    assert [row[3] for row in table.rows[:3]] == ["1.00", "1.00", "2.00"]


def test_e4_gradients_are_once_and_adam_twice_the_parameters(cuda):
    model, optimizer = model_and(torch.optim.Adam)
    train(model, optimizer)
    parameters, gradients, state = sizes([optimizer], 0)
    assert gradients == parameters
    assert state == pytest.approx(2 * parameters, rel=0.01)  # and a step counter each


@pytest.mark.parametrize(
    ("make", "options", "times"),
    [(torch.optim.SGD, {"lr": 0.1}, 0), (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, 1)],
)
def test_s1_19_the_state_is_that_of_the_optimizer(cuda, make, options, times):
    model, optimizer = model_and(make, **options)
    train(model, optimizer)
    assert sizes([optimizer], 0) == (8080, 8080, times * 8080)


def test_frozen_and_shared_parameters_and_other_devices_are_not_counted_wrongly(cuda):
    model, optimizer = model_and()
    model.bias.requires_grad_(False)
    again = torch.optim.SGD([model.weight], lr=0.1)
    assert sizes([optimizer, again], 0) == (8080, 8000, 0)
    assert sizes([optimizer], 1) == (0, 0, 0)
    assert sizes([], 0) == (0, 0, 0)


def test_s1_19_without_an_optimizer_there_is_no_breakdown(cuda):
    with fastprof.Profiler(functions=False, gpu=False) as prof:
        prof.step()
    report = prof.report()
    assert report.memory is not None
    assert report.memory.parts is None
    assert all(table.title != "GPU memory at its peak" for table in all_tables(report))


def test_s1_19_parts_that_were_not_there_at_once_are_no_breakdown(cuda, monkeypatch):
    monkeypatch.setattr(Allocator, "peak", 20_000)  # gradients are freed one by one
    assert train(*model_and()).report().memory.parts is None


def test_s1_19_a_run_on_the_cpu_has_no_parts_of_gpu_memory(monkeypatch):
    before = hooks()
    with fastprof.Profiler(functions=False, gpu=False) as prof:
        if torch.version.cuda is None:
            assert hooks() == before
        model, optimizer = model_and()
        model(torch.ones(3, 100)).sum().backward()
        optimizer.step()
        prof.step()
    assert prof.report().memory is None or prof.report().memory.parts is None
    assert hooks() == before


def test_p9_an_optimizer_that_cannot_be_read_costs_the_training_nothing(cuda, monkeypatch):
    before = hooks()

    def broken(tensor, device):
        raise RuntimeError("no such tensor")

    monkeypatch.setattr(memory_parts, "_is_on", broken)
    prof = train(*model_and())
    assert hooks() == before
    report = prof.report()
    assert report.snapshot.counters["memory_errors"] == 1
    assert report.memory.parts is None


def test_optimizers_are_not_kept_alive(cuda):
    faults = []
    watch = OptimizerMemory(faults.append)
    watch.device = 0
    watch.watch()
    watch.watch()
    try:
        model, optimizer = model_and()
        optimizer.step()
        assert watch.sizes() == (8080, 8080, 0)
        del model, optimizer
        other, its = model_and(torch.optim.SGD, lr=0.1)
        its.step()
        assert watch.sizes() == (8080, 8080, 0)
        other.cpu()
    finally:
        watch.end()
    assert faults == []


@pytest.mark.parametrize("bad", [[1, 2], [1, 2, -3], "x", [1, 2, 3.5]])
def test_a_damaged_breakdown_is_refused(bad, cuda):
    data = train(*model_and()).snapshot().to_dict()
    data["memory"]["parts"] = bad
    with pytest.raises(SnapshotError, match=r"memory\.parts"):
        Snapshot.from_dict(data)


def test_a_run_saved_before_there_was_a_breakdown_can_be_read(cuda):
    data = train(*model_and()).snapshot().to_dict()
    del data["memory"]["parts"]
    assert build_report(Snapshot.from_dict(data)).memory.parts is None
