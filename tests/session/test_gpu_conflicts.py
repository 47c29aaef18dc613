"""Pausing for other profilers of the GPU."""

from __future__ import annotations

import importlib.util
import os
import sys
import types

import fastprof
import pytest
from fake_gpu import FakeGpu, found, recorder_with
from fastprof import capture
from fastprof.session.gpu.rival_profilers import Conflicts
from fastprof.session.operators.user_profiler import ForeignProfiler


class Torch(types.ModuleType):
    """The relevant part of torch.autograd.profiler; Kineto is a list."""

    def __init__(self) -> None:
        super().__init__("torch.autograd.profiler")
        self._is_profiler_enabled = False
        self.kineto: list[str] = []
        self._prepare_profiler = lambda config, activities: self.kineto.append("prepare")
        self._enable_profiler = lambda config, activities, scopes=(): self.kineto.append("enable")
        self._disable_profiler = lambda: self.kineto.append("disable") or "results"

    def window(self, activities=("CPU", "CUDA")):
        self._prepare_profiler(None, activities)
        self._enable_profiler(None, activities)
        return self._disable_profiler()


@pytest.fixture
def calls():
    return []


@pytest.fixture
def conflicts(calls):
    one = Conflicts(lambda why: calls.append(f"pause {why}"), lambda: calls.append("resume"))
    yield one
    one.uninstall()


@pytest.fixture
def torch(monkeypatch):
    module = Torch()
    monkeypatch.setitem(sys.modules, "torch.autograd.profiler", module)
    return module


PAIR = ["pause torch.profiler", "resume"]


def test_a_window_of_torch_pauses_from_before_its_preparation_to_after_its_end(
    conflicts, calls, torch
) -> None:
    torch.kineto = calls
    conflicts.install()
    assert torch.window() == "results"
    assert calls == ["pause torch.profiler", "prepare", "enable", "disable", "resume"]
    assert conflicts.holder == ""


def test_cpu_activities_alone_pause_as_well(conflicts, calls, torch) -> None:
    """Kineto takes the subscriber slot at its first profile, with any activities."""
    conflicts.install()
    torch.window(["CPU"])
    assert calls == PAIR


def test_emit_nvtx_does_not_pause(conflicts, calls, torch) -> None:
    conflicts.install()
    torch._enable_profiler(None, set())
    torch._disable_profiler()
    assert calls == []
    assert torch.kineto == ["enable", "disable"]


def test_emit_nvtx_inside_a_window_does_not_end_the_pause(conflicts, calls, torch) -> None:
    conflicts.install()
    torch._prepare_profiler(None, activities=["CUDA"])
    torch._enable_profiler(None, activities=["CUDA"])
    torch._enable_profiler(None, activities=())
    torch._disable_profiler()
    assert calls == PAIR[:1]
    torch._disable_profiler()
    assert calls == PAIR


def test_nested_windows_are_one_pause(conflicts, calls, torch) -> None:
    conflicts.install()
    torch._prepare_profiler(None, ["CPU"])
    torch._enable_profiler(None, ["CPU"])
    torch.window()
    assert calls == PAIR[:1]
    torch._disable_profiler()
    assert calls == PAIR


@pytest.mark.parametrize("broken", ["_prepare_profiler", "_enable_profiler", "_disable_profiler"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_of_torch_passes_and_ends_the_pause(
    conflicts, calls, torch, broken, error
) -> None:
    raised = error("Can't do that")

    def fails(*args):
        raise raised

    setattr(torch, broken, fails)
    conflicts.install()
    with pytest.raises(error) as caught:
        torch.window()
    assert caught.value is raised
    assert calls == PAIR
    assert conflicts.holder == ""


def test_a_second_preparation_without_a_window_does_not_pause_for_ever(
    conflicts, calls, torch
) -> None:
    conflicts.install()
    torch._prepare_profiler(None, ["CUDA"])
    torch.window()
    assert calls == PAIR


def test_a_window_that_began_before_is_waited_for(conflicts, calls, torch) -> None:
    torch._is_profiler_enabled = True
    conflicts.install()
    assert conflicts.holder == "torch.profiler"
    torch._disable_profiler()
    assert calls == PAIR


def test_uninstalling_restores_the_very_functions(conflicts, calls, torch) -> None:
    before = dict(vars(torch))
    conflicts.install()
    conflicts.install()
    assert torch._enable_profiler is not before["_enable_profiler"]
    conflicts.uninstall()
    assert vars(torch) == before
    torch.window()
    assert calls == []


def test_a_wrapper_put_over_ours_stays_and_ours_does_nothing_any_more(
    conflicts, calls, torch
) -> None:
    conflicts.install()
    ours = torch._disable_profiler

    def theirs():
        return ours()

    torch._disable_profiler = theirs
    conflicts.uninstall()
    assert torch._disable_profiler is theirs
    assert torch.window() == "results"
    assert calls == []


def test_uninstalling_inside_a_window_does_not_resume(conflicts, calls, torch) -> None:
    conflicts.install()
    torch._prepare_profiler(None, ["CUDA"])
    kept = torch._disable_profiler
    conflicts.uninstall()
    kept()
    assert calls == PAIR[:1]


def test_a_torch_that_is_half_imported_is_left_alone(conflicts, monkeypatch) -> None:
    module = types.ModuleType("torch.autograd.profiler")
    module._enable_profiler = print
    monkeypatch.setitem(sys.modules, "torch.autograd.profiler", module)
    conflicts.install()
    assert module._enable_profiler is print


# -- other profilers ------------------------------------------------------------------


@pytest.fixture
def proton(monkeypatch):
    inner = types.ModuleType("triton.profiler.profile")
    sessions = iter(range(10))

    def start(name=None, *, backend=None):
        return None if name == "ignored" else next(sessions)

    inner.start = start
    inner.activate = lambda session=None: None
    inner.deactivate = lambda session=None: None
    inner.finalize = lambda session=None, output_format="hatchet": None
    outer = types.ModuleType("triton.profiler")
    vars(outer).update({k: v for k, v in vars(inner).items() if not k.startswith("__")})
    monkeypatch.setitem(sys.modules, "triton.profiler.profile", inner)
    monkeypatch.setitem(sys.modules, "triton.profiler", outer)
    return outer


def test_proton_has_the_records_while_a_session_is_active(conflicts, calls, proton) -> None:
    conflicts.install()
    first, second = proton.start("a"), proton.start("b", backend="cupti")
    assert calls == ["pause triton.profiler"]
    proton.deactivate(first)
    assert len(calls) == 1
    proton.deactivate()
    assert calls == ["pause triton.profiler", "resume"]
    proton.activate(second)
    proton.finalize(second)
    proton.finalize()
    assert calls == ["pause triton.profiler", "resume"] * 2


def test_proton_calls_that_do_nothing_or_need_no_cupti(conflicts, calls, proton) -> None:
    conflicts.install()
    assert proton.start("x", backend="instrumentation") == 0
    proton.finalize(0)
    assert calls == []
    assert proton.start("ignored") is None
    assert calls == ["pause triton.profiler", "resume"]


def test_p9_arguments_that_make_no_sense_are_the_other_profiler_s_to_refuse(
    conflicts, calls, proton
) -> None:
    conflicts.install()
    proton.start("a")
    proton.finalize(["no", "session"])  # this one ignores it
    with pytest.raises(TypeError, match="unexpected keyword"):
        proton.finalize(sessions=1)
    proton.start("b")
    proton.finalize()
    assert calls == ["pause triton.profiler", "resume"] * 2


def test_proton_s_own_module_is_watched_as_well_and_both_are_restored(
    conflicts, calls, proton
) -> None:
    inner = sys.modules["triton.profiler.profile"]
    before = dict(vars(inner)), dict(vars(proton))
    conflicts.install()
    inner.start("decorated")
    assert calls == ["pause triton.profiler"]
    conflicts.uninstall()
    assert (dict(vars(inner)), dict(vars(proton))) == before


@pytest.fixture
def jax(monkeypatch):
    inner = types.ModuleType("jax._src.profiler")
    inner._profile_state = types.SimpleNamespace(profile_session=None)

    def start_trace(log_dir):
        if inner._profile_state.profile_session:
            raise RuntimeError("Profile has already been started.")
        inner._profile_state.profile_session = log_dir

    def stop_trace():
        inner._profile_state.profile_session = None

    inner.start_trace, inner.stop_trace = start_trace, stop_trace
    outer = types.ModuleType("jax.profiler")
    outer.start_trace, outer.stop_trace = start_trace, stop_trace
    monkeypatch.setitem(sys.modules, "jax._src.profiler", inner)
    monkeypatch.setitem(sys.modules, "jax.profiler", outer)
    return outer


def test_a_trace_of_jax_has_the_records(conflicts, calls, jax) -> None:
    conflicts.install()
    jax.start_trace("log")
    with pytest.raises(RuntimeError, match="already"):
        jax.start_trace("again")
    assert calls == ["pause jax.profiler"]
    jax.stop_trace()
    assert calls == ["pause jax.profiler", "resume"]


def test_a_trace_of_jax_that_began_before_is_waited_for(conflicts, calls, jax) -> None:
    jax.start_trace("log")
    conflicts.install()
    assert conflicts.holder == "jax.profiler"
    jax.stop_trace()
    assert calls == ["pause jax.profiler", "resume"]


class Monitor(types.ModuleType):
    """The relevant part of torch.profiler._cupti_monitor."""

    def __init__(self) -> None:
        super().__init__("torch.profiler._cupti_monitor")
        self._monitor_singleton: object = None
        self.refuses = False

        def start_collection(folder: str) -> object:
            if self._monitor_singleton is not None or self.refuses:
                raise RuntimeError("already active")
            self._monitor_singleton = object()
            return self._monitor_singleton

        def stop_collection() -> dict[str, int]:
            self._monitor_singleton = None
            return {"kernels": 1}

        self.start_collection = start_collection
        self.stop_collection = stop_collection


@pytest.fixture
def monitor(monkeypatch):
    module = Monitor()
    monkeypatch.setitem(sys.modules, "torch.profiler._cupti_monitor", module)
    return module


MONITOR = ["pause torch.profiler's CUPTI monitor", "resume"]


def test_torch_s_monitor_has_the_records_from_start_to_stop(conflicts, calls, monitor) -> None:
    conflicts.install()
    assert monitor.start_collection("folder") is monitor._monitor_singleton
    with pytest.raises(RuntimeError, match="already"):
        monitor.start_collection("folder")
    assert calls == MONITOR[:1]
    assert monitor.stop_collection() == {"kernels": 1}
    assert calls == MONITOR


def test_torch_s_monitor_that_ran_before_is_waited_for(conflicts, calls, monitor) -> None:
    monitor.start_collection("folder")
    conflicts.install()
    assert calls == MONITOR[:1]
    monitor.stop_collection()
    assert calls == MONITOR


def test_torch_s_monitor_that_does_not_start_ends_the_pause(conflicts, calls, monitor) -> None:
    monitor.refuses = True
    conflicts.install()
    with pytest.raises(RuntimeError):
        monitor.start_collection("folder")
    assert calls == MONITOR


def test_torch_s_monitor_is_as_the_watch_expects() -> None:
    real = pytest.importorskip("torch.profiler._cupti_monitor")
    assert callable(real.start_collection)
    assert callable(real.stop_collection)
    assert real._monitor_singleton is None


def test_two_profilers_that_overlap_are_one_pause(conflicts, calls, torch, jax) -> None:
    conflicts.install()
    jax.start_trace("log")
    torch._prepare_profiler(None, ["CPU"])
    torch._enable_profiler(None, ["CPU"])
    jax.stop_trace()
    assert calls == ["pause jax.profiler"]
    assert conflicts.holder == "torch.profiler"
    torch._disable_profiler()
    assert calls == ["pause jax.profiler", "resume"]


# -- within a run ---------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch) -> FakeGpu:
    fake = FakeGpu()
    monkeypatch.setattr("fastprof.capture.options.Recorder", recorder_with(fake))
    monkeypatch.setattr(capture, "gpu_find", found(), raising=False)
    return fake


def run_names(fake: FakeGpu) -> list[str]:
    return [n for n in fake.names if not n.endswith(("sections", "able"))]


def test_torch_imported_during_the_run_is_watched_from_the_next_poll_on(fake, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.autograd.profiler", raising=False)
    late = Torch()
    with fastprof.Profiler(functions=False) as prof:
        prof.step()
        sys.modules["torch.autograd.profiler"] = late
        prof.step()
        late.window()
    del sys.modules["torch.autograd.profiler"]
    assert run_names(fake) == ["start", "pause", "resume", "stop"]


def test_cuda_is_not_touched_while_another_profiler_records(fake, torch) -> None:
    torch._is_profiler_enabled = True
    with fastprof.Profiler(functions=False) as prof:
        for _ in range(10):
            prof.step()
        assert run_names(fake) == []
        torch._disable_profiler()
        assert run_names(fake) == ["start"]


def test_a_run_inside_another_profiler_s_window_says_who_had_the_records(fake, torch) -> None:
    torch._is_profiler_enabled = True
    with fastprof.Profiler(functions=False) as prof:
        prof.step()
    assert run_names(fake) == []
    assert prof.snapshot().gpu.reason == "torch.profiler had the GPU's activity records"


def test_a_window_while_waiting_for_cuda_does_not_pause_what_is_not_there(fake, torch) -> None:
    fake.answers = ["waiting", "on"]
    with fastprof.Profiler(functions=False):
        torch.window()
    assert run_names(fake) == ["start", "start", "stop"]


@pytest.mark.parametrize("method", ["pause", "resume"])
def test_p9_a_collector_that_cannot_pause_is_switched_off(fake, torch, method) -> None:
    fake.broken = {method}
    before = dict(vars(torch))
    with fastprof.Profiler(functions=False) as prof:
        assert torch.window() == "results"
        assert vars(torch) == before
        assert torch.window() == "results"
    assert run_names(fake)[-1] == "stop"
    assert run_names(fake).count(method) == 1
    assert f"{method} is broken" in prof.snapshot().notes[0]


def test_a_flush_leaves_the_other_profiler_s_records_alone(fake, torch) -> None:
    with fastprof.Profiler(functions=False) as prof:
        torch._prepare_profiler(None, ["CUDA"])
        prof.report()
    assert "flush" not in fake.names


def test_time_of_the_other_profiler_is_not_fastprof_s(fake, torch) -> None:
    torch._disable_profiler = os.getpid
    with fastprof.Profiler() as prof:
        torch.window()
    snapshot = prof.snapshot()
    keys = [(key.name, key.kind) for key in snapshot.keys]
    called = {keys[k][0] for thread in snapshot.threads for k in thread.nodes.key}
    assert "<built-in method posix.getpid>" in called
    assert "call_through" in called
    assert "_was_disabled" not in called


# -- the real torch -------------------------------------------------------------------

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


@needs_torch
def test_torch_profiler_with_a_schedule_works_inside_a_run(fake) -> None:
    import torch
    import torch.autograd.profiler

    before = dict(vars(torch.autograd.profiler))
    traces = []
    with fastprof.Profiler(functions=False) as prof:
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2),
            on_trace_ready=lambda p: traces.append(p.events()),
            acc_events=True,
        ) as other:
            for _ in range(10):
                torch.ones(4) + 1
                other.step()
                prof.step()
        with torch.autograd.profiler.profile() as last:
            torch.ones(4) + 1
    after = dict(vars(torch.autograd.profiler))
    assert run_names(fake) == ["start", *["pause", "resume"] * 3, "stop"]
    assert {call[1] for call in fake.calls if call[0] == "pause"} == {"torch.profiler"}
    adds = [sum(e.name == "aten::add" for e in events) for events in traces]
    assert adds == [2, 4]
    assert sum(e.name == "aten::add" for e in last.function_events) == 1
    changed = {name for name in before if before[name] is not after[name]}
    assert not changed & {"_prepare_profiler", "_enable_profiler", "_disable_profiler"}


@needs_torch
def test_torch_s_own_error_comes_through(fake) -> None:
    import torch
    import torch.autograd.profiler

    with fastprof.Profiler(functions=False):
        with pytest.raises(TypeError):
            torch.autograd.profiler._prepare_profiler("no config")
        with torch.profiler.profile() as other:
            torch.ones(2) + 1
    assert any(e.name == "aten::add" for e in other.events())
    assert run_names(fake) == ["start", *["pause", "resume"] * 2, "stop"]


@pytest.mark.parametrize("above_first", [True, False])
def test_two_watches_of_one_module_leave_nothing_in_either_order(
    conflicts, torch, above_first
) -> None:
    own = torch._enable_profiler
    foreign = ForeignProfiler(lambda: None)
    conflicts.install()
    foreign.install()
    for watch in (foreign, conflicts) if above_first else (conflicts, foreign):
        watch.uninstall()
    assert torch._enable_profiler is own
