"""GPU memory between steps, with a fake torch whose allocator is four numbers."""

from __future__ import annotations

import importlib.util
import io
import itertools
import logging
import sys
import threading
import types

import fastprof
import pytest
from fastprof import profile_section
from fastprof.session.faults import Faults
from fastprof.session.gpu.memory import (
    MAX_SAMPLES,
    MAX_SECTIONS,
    OTHER_SECTIONS,
    MemorySampler,
)
from fastprof.session.pace import Pace

GIB = 1 << 30
MB = 10**6


class FakeCuda:
    """``torch.cuda`` with an allocator; ``reads`` and ``resets`` count the calls."""

    def __init__(self, *, initialized: bool = True) -> None:
        self.initialized = initialized
        self.allocated = self.peak = 0
        self.reserved = 0
        self.counts = {"num_alloc_retries": 0, "num_ooms": 0,
                       "num_device_alloc": 0, "num_device_free": 0}  # fmt: skip
        self.reads = self.resets = 0
        self.broken = False

    def use(self, change: int) -> None:
        self.allocated += change
        self.peak = max(self.peak, self.allocated)
        self.reserved = max(self.reserved, self.allocated)

    def is_initialized(self) -> bool:
        return self.initialized

    def current_device(self) -> int:
        return 1

    def get_device_properties(self, device: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(total_memory=80 * GIB)

    def memory_stats(self, device: int) -> dict[str, int]:
        assert device == 1
        self.reads += 1
        if self.broken:
            raise RuntimeError("CUDA error: unspecified launch failure")
        return {
            "allocated_bytes.all.current": self.allocated,
            "allocated_bytes.all.peak": self.peak,
            "reserved_bytes.all.current": self.reserved,
            "reserved_bytes.all.peak": self.reserved,
            **self.counts,
        }

    def reset_peak_memory_stats(self, device: int) -> None:
        assert device == 1
        self.resets += 1
        self.peak = self.allocated


@pytest.fixture
def cuda(monkeypatch) -> FakeCuda:
    cuda = FakeCuda()
    torch = types.ModuleType("torch")
    torch.cuda = cuda
    monkeypatch.setitem(sys.modules, "torch", torch)
    return cuda


def profiler(**options) -> fastprof.Profiler:
    return fastprof.Profiler(functions=False, gpu=False, **options)


def train(cuda: FakeCuda, steps: int, grow: int = 0, **options) -> fastprof.Profiler:
    """Run steps that need 300 MB in addition to the memory they keep."""
    with profiler(**options) as prof:
        for _ in range(steps):
            cuda.use(300 * MB)
            cuda.use(grow - 300 * MB)
            prof.step()
    return prof


def test_s1_18_every_step_is_sampled_with_its_own_peak(cuda) -> None:
    cuda.use(1000 * MB)
    cuda.use(-500 * MB)
    prof = train(cuda, 5, grow=50 * MB, memory="step")
    memory = prof.snapshot().memory
    assert [(s.step, s.allocated // MB, s.peak_allocated // MB) for s in memory.samples] == [
        (1, 550, 800), (2, 600, 850), (3, 650, 900), (4, 700, 950), (5, 750, 1000),
    ]  # fmt: skip
    assert memory.peaks_reset
    assert memory.steps == 5
    assert memory.sum_peak_allocated == 4500 * MB
    assert (memory.first_allocated, memory.last_allocated) == (550 * MB, 750 * MB)
    assert memory.peak_allocated == 1000 * MB


def test_s1_01_memory_used_and_total(cuda) -> None:
    cuda.use(3 * GIB)
    prof = train(cuda, 1)
    memory = prof.snapshot().memory
    assert (memory.device, memory.total_bytes) == (1, 80 * GIB)
    assert memory.current_allocated == memory.current_reserved - 300 * MB == 3 * GIB
    assert fastprof.snapshot.Snapshot.from_dict(prof.snapshot().to_dict()).memory == memory


def test_s1_15_calls_of_the_device_allocator_are_counted_from_the_start(cuda) -> None:
    cuda.counts = dict.fromkeys(cuda.counts, 7)
    with profiler() as prof:
        cuda.counts.update(
            num_alloc_retries=8, num_ooms=9, num_device_alloc=107, num_device_free=57
        )
        prof.step()
    memory = prof.snapshot().memory
    assert (memory.retries, memory.ooms) == (1, 2)
    assert (memory.device_allocs, memory.device_frees) == (100, 50)


def test_auto_samples_at_logged_steps_and_the_end_and_resets_nothing(cuda) -> None:
    with profiler(log_every=10) as prof:
        sampler = prof._run.parts.of(MemorySampler)
        for _ in range(25):
            sampler._not_before = 0.0  # this loop is faster than any training
            prof.step()
    assert [s.step for s in prof.snapshot().memory.samples] == [10, 20, 25]
    assert cuda.resets == 0
    assert not prof.snapshot().memory.peaks_reset


def test_auto_takes_no_more_than_a_thousandth_of_the_time(cuda) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.0001  # cost of a sample here
        return now

    sampler = MemorySampler("auto", Pace(1), Faults(), clock)
    sampler.begin()
    for step in range(1, 1001):
        now += 0.01
        sampler.at_step(step)
    assert sampler.to_dict()["steps"] == pytest.approx(1000 * 0.01 / 0.1, rel=0.1)


def test_no_memory_no_calls(cuda) -> None:
    prof = train(cuda, 100, memory=False, log_every=1)
    assert cuda.reads == 0
    assert prof.snapshot().memory is None


def test_cuda_that_is_not_in_use_is_not_touched(cuda) -> None:
    cuda.initialized = False
    prof = train(cuda, 20, memory="step")
    assert cuda.reads == cuda.resets == 0
    assert prof.snapshot().memory is None


def test_cuda_initialised_during_the_run_counts_from_zero(cuda) -> None:
    cuda.initialized = False
    with profiler(memory="step") as prof:
        prof.step()
        cuda.initialized = True
        cuda.counts["num_device_alloc"] = 12
        prof.step()
    memory = prof.snapshot().memory
    assert memory.device_allocs == 12
    assert [s.step for s in memory.samples] == [2]


def test_a_run_without_steps_has_its_end(cuda) -> None:
    cuda.use(GIB)
    with profiler() as prof:
        pass
    assert [s.step for s in prof.snapshot().memory.samples] == [0]
    assert prof.snapshot().memory.current_allocated == GIB


def test_torch_is_not_imported_for_it(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with profiler(memory="step") as prof:
        prof.step()
    assert "torch" not in sys.modules
    assert prof.snapshot().memory is None


def test_p9_stats_that_raise_are_reported_once_and_the_run_goes_on(cuda, caplog) -> None:
    with caplog.at_level(logging.WARNING, "fastprof"):
        with profiler(memory="step") as prof:
            for step in range(20):
                cuda.broken = step >= 10
                prof.step()
    snapshot = prof.snapshot()
    assert len(caplog.records) == 1
    assert "Sampling GPU memory failed and was switched off" in snapshot.notes[0]
    assert "unspecified launch failure" in snapshot.notes[0]
    assert snapshot.counters["memory_errors"] == 1
    assert [s.step for s in snapshot.memory.samples] == list(range(1, 11))
    assert prof.steps == 20


@pytest.mark.parametrize("missing", ["memory_stats", "reset_peak_memory_stats"])
def test_p9_a_torch_without_the_functions_is_reported(cuda, monkeypatch, missing) -> None:
    monkeypatch.delattr(FakeCuda, missing)
    prof = train(cuda, 5, memory="step")
    assert prof.snapshot().counters["memory_errors"] == 1
    assert prof.steps == 5


# -- bounded --------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [MAX_SAMPLES - 1, MAX_SAMPLES, MAX_SAMPLES + 1, 5000])
def test_samples_are_thinned_evenly_and_no_peak_is_lost(cuda, steps) -> None:
    sampler = MemorySampler("step", Pace(1), Faults())
    sampler.begin()
    for step in range(1, steps + 1):
        extra = 7 * MB if step == 100 else MB
        cuda.use(extra)
        cuda.use(-extra)
        sampler.at_step(step)
    memory = sampler.to_dict()
    rows = memory["samples"]
    assert memory["steps"] == steps
    assert min(steps, MAX_SAMPLES // 2) <= len(rows) <= MAX_SAMPLES
    assert rows[-1][0] == steps
    gaps = [b[0] - a[0] for a, b in itertools.pairwise(rows[:-1])]
    assert len(set(gaps)) == 1
    assert max(row[3] for row in rows) == 7 * MB
    assert memory["sum_peak_allocated"] == (steps - 1 + 7) * MB


def test_section_names_are_bounded(cuda) -> None:
    with profiler(memory="section") as prof:
        for i in range(MAX_SECTIONS + 10):
            with prof.section(f"part {i}"):
                pass
    rows = prof.snapshot().memory.sections
    assert len(rows) == MAX_SECTIONS + 1
    assert (rows[-1].name, rows[-1].count) == (OTHER_SECTIONS, 10)


# -- sections -------------------------------------------------------------------------


def test_s1_18_memory_per_section(cuda) -> None:
    with profiler(memory="section") as prof:
        for _ in range(3):
            with prof.section("forward"):
                cuda.use(500 * MB)
                cuda.use(-100 * MB)
            with prof.section("backward"):
                with prof.section("hooks"):
                    cuda.use(600 * MB)
                cuda.use(-980 * MB)
            prof.step()
    memory = prof.snapshot().memory
    assert [
        (s.name, s.count, s.peak_allocated // MB, s.last_allocated // MB, s.grown_bytes // MB)
        for s in memory.sections
    ] == [("forward", 3, 540, 440, 1200), ("backward", 3, 1040, 60, -1140)]
    # The step's peak is the largest peak of its sections, although each section resets it.
    assert [s.peak_allocated // MB for s in memory.samples] == [1000, 1020, 1040]
    assert memory.peaks_reset
    counts = {k.name: s.count for s in prof.snapshot().sections
              for k in [prof.snapshot().keys[s.key]]}  # fmt: skip
    assert counts == {"forward": 3, "backward": 3, "hooks": 3}


def test_a_sampled_section_passes_exceptions_and_counts_them(cuda) -> None:
    with profiler(memory="section") as prof:
        for _ in range(2):
            with pytest.raises(KeyError):
                with prof.section("forward"):
                    raise KeyError("x")
    (row,) = prof.snapshot().memory.sections
    assert (row.name, row.count) == ("forward", 2)
    assert prof.snapshot().sections[0].errors == 2


def test_a_sampled_section_decorates_functions(cuda) -> None:
    with profiler(memory="section") as prof:

        @prof.section("forward")
        def forward(x: int) -> int:
            """Doubles."""
            return 2 * x

        assert [forward(i) for i in range(3)] == [0, 2, 4]
    assert forward.__doc__ == "Doubles."
    assert prof.snapshot().memory.sections[0].count == 3
    assert prof.section("forward").name == "forward"


def test_only_the_training_thread_is_sampled(cuda) -> None:
    with profiler(memory="section") as prof:

        def other() -> None:
            with prof.section("loading"):
                pass

        thread = threading.Thread(target=other)
        with prof.section("forward"):
            thread.start()
            thread.join()
    assert [s.name for s in prof.snapshot().memory.sections] == ["forward"]


def test_a_section_is_the_plain_one_where_memory_is_not_asked_for(cuda) -> None:
    for options in ({}, {"memory": "step"}, {"memory": "section", "enabled": False}):
        prof = profiler(**options)
        assert type(prof.section("forward")) is type(profile_section("forward"))


def test_after_the_run_nothing_is_read_or_reset(cuda) -> None:
    with profiler(memory="section") as prof:
        pass
    calls = cuda.reads, cuda.resets
    with prof.section("forward"):
        pass
    prof.report()
    assert (cuda.reads, cuda.resets) == calls


# -- the line -------------------------------------------------------------------------


def test_s1_33_periodic_memory_line(cuda) -> None:
    stream = io.StringIO()
    cuda.use(int(24.89 * GIB))
    cuda.use(int(24.52 * GIB) - cuda.allocated)
    cuda.reserved = int(25.12 * GIB)
    with fastprof.start_training_profiling(10, stream=stream, gpu=False) as prof:
        for _ in range(20):
            with profile_section("forward"):
                pass
            prof.step()
    line = "GPU 1: Allocated: 24.52GB, Reserved: 25.12GB, Peak: 24.89GB\n"
    text = stream.getvalue()
    assert text.count(line) == 2
    assert text.index(f"[Step 10] {line}") < text.index(f"[Step 20] {line}")


@pytest.mark.parametrize(("memory", "rank"), [(False, "0"), ("auto", "1")])
def test_s1_33_no_line_without_memory_or_on_other_ranks(cuda, memory, rank, monkeypatch) -> None:
    monkeypatch.setenv("RANK", rank)
    stream = io.StringIO()
    with fastprof.start_training_profiling(1, stream=stream, gpu=False, memory=memory) as prof:
        prof.step()
    assert "Allocated" not in stream.getvalue()


def test_s1_33_no_line_without_a_gpu(cuda) -> None:
    cuda.initialized = False
    stream = io.StringIO()
    with fastprof.start_training_profiling(1, stream=stream, gpu=False) as prof:
        prof.step()
    assert "Step 1" in stream.getvalue()
    assert "Allocated" not in stream.getvalue()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("mode", ["auto", "step", "section"])
def test_real_torch_without_cuda(mode) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is CUDA")
    with profiler(memory=mode, log_every=1) as prof:
        for _ in range(3):
            with prof.section("forward"):
                torch.ones(4) + 1
            prof.step()
    snapshot = prof.snapshot()
    assert snapshot.memory is None
    assert snapshot.notes == ()
    assert snapshot.sections[0].count == 3


def test_a_start_that_failed_and_is_repeated_has_samples(cuda: FakeCuda) -> None:
    sampler = MemorySampler("step", Pace(1), Faults())
    for _ in range(2):
        sampler.begin()
        sampler.end(0)
    sampler.begin()
    sampler.at_step(1)
    assert sampler.to_dict()["steps"] == 2
