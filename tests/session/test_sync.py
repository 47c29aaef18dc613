"""Waiting for the GPU at section boundaries, with a fake torch."""

from __future__ import annotations

import sys
import types

import fastprof
import pytest
from fastprof import profile_section


class FakeCuda:
    def __init__(self, *, initialized: bool = True, capturing: bool = False, fails: bool = False):
        self.initialized = initialized
        self.capturing = capturing
        self.fails = fails
        self.calls = 0

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def synchronize(self) -> None:
        self.calls += 1
        if self.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


def run(monkeypatch, cuda: FakeCuda, sync, section_sync=None) -> fastprof.Profiler:
    torch = types.ModuleType("torch")
    torch.cuda = cuda
    monkeypatch.setitem(sys.modules, "torch", torch)
    with fastprof.Profiler(functions=False, sync=sync) as prof:
        for _ in range(5):
            with profile_section("forward", sync=section_sync):
                pass
    return prof


@pytest.mark.parametrize("sync", ["cuda", True])
def test_s4_07_two_syncs_per_section_when_cuda_is_in_use(monkeypatch, sync) -> None:
    cuda = FakeCuda()
    prof = run(monkeypatch, cuda, sync)
    assert cuda.calls == 10
    assert prof.snapshot().meta["sync"] is True


def test_s4_07_none_on_the_cpu_and_none_when_off(monkeypatch) -> None:
    cuda = FakeCuda(initialized=False)
    run(monkeypatch, cuda, "cuda")
    assert cuda.calls == 0
    cuda = FakeCuda()
    prof = run(monkeypatch, cuda, False)
    assert cuda.calls == 0
    assert prof.snapshot().meta["sync"] is False


def test_s4_05_fetching_a_batch_never_waits_for_the_gpu(monkeypatch) -> None:
    cuda = FakeCuda()
    torch = types.ModuleType("torch")
    torch.cuda = cuda
    monkeypatch.setitem(sys.modules, "torch", torch)
    with fastprof.Profiler(functions=False, sync="cuda") as prof:
        for _ in prof.loader(range(5), "main"):
            pass
    assert cuda.calls == 0


def test_s4_07_one_section_can_ask_for_it_or_decline(monkeypatch) -> None:
    cuda = FakeCuda()
    run(monkeypatch, cuda, False, section_sync=True)
    assert cuda.calls == 10
    cuda = FakeCuda()
    run(monkeypatch, cuda, "cuda", section_sync=False)
    assert cuda.calls == 0


def test_s4_07_a_failing_sync_is_counted_and_goes_no_further(monkeypatch) -> None:
    prof = run(monkeypatch, FakeCuda(fails=True), "cuda")
    snapshot = prof.snapshot()
    assert snapshot.counters["sync_errors"] == 10
    assert sum(s.count for s in snapshot.sections) == 5


def test_s4_07_a_cuda_graph_being_captured_is_left_alone(monkeypatch) -> None:
    cuda = FakeCuda(capturing=True)
    run(monkeypatch, cuda, "cuda")
    assert cuda.calls == 0


def test_torch_is_not_imported_for_it(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with fastprof.Profiler(functions=False, sync="cuda"):
        with profile_section("forward"):
            pass
    assert "torch" not in sys.modules
