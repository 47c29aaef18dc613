"""Compilations of a run, on a fake compiler and on fakes of torch's private modules."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import fastprof
import pytest
from fastprof.session.compiling.jax_compiler import MODULE as JAX_MODULE
from fastprof.session.compiling.jax_compiler import JaxCompiler
from fastprof.session.compiling.part import Compilations
from fastprof.session.compiling.torch_compiler import MODULE, TorchCompiler
from fastprof.snapshot.compilations import CompileEvent, GraphBreak

MS = 1_000_000


class FakeCompiler:
    """Compiles where the test says so; its module is one that is always imported."""

    name, module = "fake.compile", "sys"

    def __init__(self) -> None:
        self.unknown: dict[str, None] = {}
        self.begins: Callable[[str, str], object] = lambda *_: None
        self.ends: Callable[[], object] = lambda: None
        self.done: list[int] = []
        self.done_at_end: Callable[..., object] = id
        self.fails = self.attached = False

    def attach(
        self,
        begins: Callable[[str, str], object],
        ends: Callable[[], object],
        done: Callable[..., object],
    ) -> None:
        self.begins, self.ends, self.attached = begins, ends, True
        self.done_at_end = done

    def check(self) -> None:
        if self.fails:
            raise AttributeError("no such interface")

    def detach(self) -> None:
        self.attached = False

    def events(self, step: int, phase: str) -> Iterator[CompileEvent]:
        while self.done:
            ns = self.done.pop(0)
            yield CompileEvent(
                step, phase, "forward", "0/0", "f", "/w/f.py", 1, ns, ns, ns, 0, 1, "", "", ""
            )

    def breaks(self) -> Iterator[GraphBreak]:
        return iter(())

    def facts(self) -> dict[str, Any]:
        return {"version": "1", "limit": 8, "cache": ""}

    def compile(self, seconds: float = 0.03) -> None:
        """Compile as torch does: it records the compilation after the end."""
        self.begins("forward", "0/0")
        time.sleep(seconds)
        self.ends()
        self.done.append(round(seconds * 1e9))


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    fake = FakeCompiler()
    monkeypatch.setattr(
        Compilations, "__init__",
        lambda self, *args: init(self, *args, compilers=[fake]),
    )  # fmt: skip
    return fake


init = Compilations.__init__


def run_with(compiler: FakeCompiler, in_step: Callable[[int], object]) -> Any:
    with fastprof.Profiler(skip_first=0, functions=False) as profiler:
        for step in range(10):
            time.sleep(0.002)
            in_step(step)
            profiler.step()
    return profiler.report()


def test_a_compilation_belongs_to_its_step_and_not_to_the_steps_time(compiler) -> None:
    report = run_with(compiler, lambda step: step in (3, 7) and compiler.compile())
    found = report.compilations
    assert [event.step for event in report.snapshot.compilations.events] == [3, 7]
    assert {event.phase for event in report.snapshot.compilations.events} == {"steps"}
    assert found.steps == 2
    walls = [ns / 1e6 for ns in report.snapshot.steps.series.wall_ns]
    compile_ms = report.snapshot.phase_ns("compile") / 1e6
    assert compile_ms >= 60
    assert found.ms == compile_ms
    assert not found.within_ms
    assert sum(walls) + compile_ms <= report.snapshot.duration_ns / 1e6
    assert not compiler.attached  # nothing stays behind


def test_a_compilation_in_another_thread_is_by_the_compilers_clock(compiler) -> None:
    def in_step(step: int) -> None:
        if step == 3:
            thread = threading.Thread(target=compiler.compile)
            thread.start()
            thread.join()

    report = run_with(compiler, in_step)
    (event,) = report.snapshot.compilations.events
    assert event.total_ns == 30_000_000
    assert report.snapshot.compilations.inside == ()
    assert report.compilations.ms == report.compilations.within_ms == 30


def test_a_step_that_does_not_compile_reads_nothing(compiler, monkeypatch) -> None:
    """It looks for the callbacks, at most once per step: 0.5 us with torch."""
    reads: list[int] = []
    looks: list[int] = []
    step_now = [0]
    events, check = compiler.events, compiler.check
    monkeypatch.setattr(
        compiler, "events", lambda *at: reads.append(step_now[0]) or list(events(*at))
    )
    monkeypatch.setattr(compiler, "check", lambda: looks.append(step_now[0]) or check())

    def in_step(step: int) -> None:
        step_now[0] = step
        if step == 5:
            compiler.compile(0.001)

    run_with(compiler, in_step)
    assert set(reads) == {5, 9}  # around the compilation, and at the end of the run
    assert max(map(looks.count, range(5))) <= 1


def test_a_failure_costs_the_compilations_and_nothing_else(compiler) -> None:
    def in_step(step: int) -> None:
        if step == 3:
            compiler.compile()
        compiler.fails = step > 3
        if step == 5:
            compiler.compile()

    report = run_with(compiler, in_step)
    assert report.snapshot.steps.count == 10
    assert report.snapshot.counters["compile_errors"] == 1
    assert sum("compilations are not known" in note for note in report.snapshot.notes) == 1
    assert not compiler.attached


def test_a_run_that_ends_in_a_compilation_leaves_its_phase(compiler) -> None:
    with fastprof.Profiler(skip_first=0) as profiler:
        profiler.step()
        compiler.begins("forward", "")
    assert profiler.report().snapshot.phase_ns("compile") >= 0
    assert not compiler.attached


def test_functions_are_recorded_again_after_a_compilation(compiler) -> None:
    def after(n: int) -> int:
        return n

    def inside() -> None:
        after(1)

    with fastprof.Profiler(skip_first=0, overhead=None) as profiler:
        for step in range(6):
            if step == 2:
                compiler.begins("forward", "")
                inside()
                compiler.ends()
            after(step)
            profiler.step()
    rows = {row.name: row.calls for row in profiler.report().functions}
    assert rows["after"] == 6
    assert "inside" not in rows


# -- fakes of torch's modules


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return fakes of torch's modules: the handler of callbacks, and the metrics."""
    handler = SimpleNamespace(start_callbacks=[], end_callbacks=[])
    metrics: list[Any] = []
    callback, utils = ModuleType(MODULE), ModuleType("torch._dynamo.utils")
    callback.callback_handler = handler  # type: ignore[attr-defined]
    utils.get_compilation_metrics = lambda: list(metrics)  # type: ignore[attr-defined]
    utils.graph_break_reasons = []  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, callback)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)
    return SimpleNamespace(handler=handler, metrics=metrics, utils=utils)


class Hashed(SimpleNamespace):
    """Stands for a code object, as a key."""

    def __hash__(self) -> int:
        return id(self)


def row(**fields: Any) -> SimpleNamespace:
    known = {"compile_id": "0/0", "co_name": "f", "co_filename": "/w/f.py", "co_firstlineno": 3}
    return SimpleNamespace(**{"recompile_reason": None, **known, **fields})


def test_each_compilation_is_read_once_and_remains_for_others(dynamo) -> None:
    dynamo.metrics.append(row(duration_us=9))  # before the run
    compiler = TorchCompiler()
    compiler.attach(lambda *_: None, lambda: None, lambda end: end())
    assert list(compiler.events(0, "steps")) == []
    dynamo.metrics += [row(duration_us=2_000), row(duration_us=3_000)]
    assert [event.total_ns for event in compiler.events(5, "steps")] == [2 * MS, 3 * MS]
    assert list(compiler.events(6, "steps")) == []
    assert len(dynamo.metrics) == 3
    del dynamo.metrics[:2]  # the deque is full
    dynamo.metrics.append(row(duration_us=4_000))
    assert [event.total_ns for event in compiler.events(7, "steps")] == [4 * MS]


def test_callbacks_that_reset_removed_are_registered_again_and_removed_at_the_end(dynamo) -> None:
    calls: list[object] = []
    compiler = TorchCompiler()
    compiler.attach(lambda *args: calls.append(args), lambda: calls.append("ends"), id)
    dynamo.handler.start_callbacks.clear()
    compiler.check()
    dynamo.handler.start_callbacks[0]()  # without arguments, as in 2.6
    for trigger in ("DYNAMO", "LAZY_BACKWARD", "TRITON_AUTOTUNING", "CUDAGRAPH_RECORDING"):
        dynamo.handler.start_callbacks[0](
            SimpleNamespace(callback_trigger=SimpleNamespace(name=trigger), compile_id="0/0")
        )
    dynamo.handler.end_callbacks[0](SimpleNamespace(compile_id="0/0"))
    assert calls == [
        ("forward", ""), ("forward", "0/0"), ("backward", "0/0"), ("runtime", "0/0"),
        ("runtime", "0/0"), "ends",
    ]  # fmt: skip
    compiler.detach()
    assert not dynamo.handler.start_callbacks
    assert not dynamo.handler.end_callbacks


def test_an_older_torch_has_seconds_and_no_reasons(dynamo) -> None:
    compiler = TorchCompiler()
    compiler.attach(lambda *_: None, lambda: None, lambda end: end())
    old = row(entire_frame_compile_time_s=2.0, backend_compile_time_s=1.0, code_gen_time_s=0.5)
    del old.recompile_reason
    dynamo.metrics.append(old)
    (event,) = compiler.events(0, "steps")
    assert (event.total_ns, event.backend_ns, event.kernel_ns) == (
        2000 * MS, 1000 * MS, 500 * MS,
    )  # fmt: skip
    assert not compiler.unknown
    old.compile_id = "0/1"
    dynamo.metrics.append(row(**vars(old)))
    del dynamo.metrics[-1].recompile_reason
    (event,) = compiler.events(1, "steps")
    assert event.reason == "not known with this version"
    assert list(compiler.unknown) == ["reasons of recompilations"]


def test_the_time_is_that_of_torchs_own_table(dynamo) -> None:
    compiler = TorchCompiler()
    compiler.attach(lambda *_: None, lambda: None, lambda end: end())
    dynamo.metrics += [
        row(duration_us=3_000, dynamo_cumulative_compile_time_us=2_000),
        row(duration_us=3_000, dynamo_cumulative_compile_time_us=2_000, is_forward=False),
    ]
    assert [event.total_ns for event in compiler.events(0, "steps")] == [2 * MS, 3 * MS]


def test_torch_2_6_has_the_reasons_in_its_failed_guards(dynamo) -> None:
    code = Hashed(co_name="f", co_filename="/w/f.py", co_firstlineno=3)
    before = ["0/0: before the run"]
    dynamo.utils.guard_failures = {code: before}
    compiler = TorchCompiler()
    compiler.attach(lambda *_: None, lambda: None, lambda end: end())
    before += ["0/0: L['n'] == 1", "0/1: L['n'] == 2", "0/0: L['n'] == 1"]
    for number in ("0/0", "0/1", "0/2"):
        dynamo.metrics.append(row(compile_id=number, duration_us=1))
        del dynamo.metrics[-1].recompile_reason
    reasons = [event.reason for event in compiler.events(0, "steps")]
    assert reasons == ["", "0/0: L['n'] == 1", "0/1: L['n'] == 2"]
    assert not compiler.unknown


def test_a_torch_without_the_interfaces_is_known_to_lack_them(dynamo) -> None:
    del dynamo.utils.get_compilation_metrics, dynamo.utils.graph_break_reasons
    dynamo.handler.start_callbacks = None
    compiler = TorchCompiler()
    compiler.attach(lambda *_: None, lambda: None, lambda end: end())
    assert list(compiler.events(0, "steps")) == list(compiler.breaks()) == []
    assert len(compiler.unknown) == 3
    compiler.detach()


def test_a_function_of_a_library_has_the_programs_line(dynamo) -> None:
    compiler = TorchCompiler()
    compiler.attach(lambda *_: None, lambda: None, lambda end: end())
    library = os.__file__
    stack = [
        f"Line: 9, Name: main, Filename: {__file__}",
        f"Line: 5, Name: wrapper, Filename: {library}",
    ]
    dynamo.metrics += [row(co_filename=library, stack_trace=stack), row(stack_trace=stack)]
    assert [event.caller for event in compiler.events(0, "steps")] == [f"{__file__}:9", ""]


def test_a_limit_and_a_lazy_backward_have_their_functions_name(dynamo) -> None:
    compiler = TorchCompiler()
    compiler.attach(lambda *_: None, lambda: None, lambda end: end())
    nameless = {"co_name": None, "co_filename": None, "co_firstlineno": None}
    dynamo.metrics += [
        row(duration_us=1),
        row(duration_us=1, is_forward=False, **nameless),
        row(
            compile_id="0/8", duration_us=1, **nameless,
            fail_reason="Dynamo recompile limit exceeded\n ... the recompile_limit cache size",
        ),
    ]  # fmt: skip
    events = list(compiler.events(0, "steps"))
    assert [(event.name, event.line) for event in events] == [("f", 3)] * 3
    assert [event.kind for event in events] == ["forward", "backward", "forward"]
    assert events[2].limit == "recompile_limit"


# -- jax


@pytest.fixture
def monitoring(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a fake of jax's module of events, with its listeners."""
    module = ModuleType(JAX_MODULE)
    kept = SimpleNamespace(timed=[], counted=[])
    module.register_event_duration_secs_listener = kept.timed.append  # type: ignore[attr-defined]
    module.register_event_listener = kept.counted.append  # type: ignore[attr-defined]
    module.unregister_event_duration_listener = kept.timed.remove  # type: ignore[attr-defined]
    module._unregister_event_listener_by_callback = kept.counted.remove  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, JAX_MODULE, module)
    return kept


def test_a_compilation_of_jax_is_the_sum_of_its_parts(monitoring) -> None:
    compiler = JaxCompiler()
    compiler.attach(lambda *_: None, lambda: None, lambda end: end())
    (timed,), (counted,) = monitoring.timed, monitoring.counted
    for _ in range(2):
        timed("/jax/core/compile/jaxpr_trace_duration", 0.1, fun_name="train")
        timed("/jax/core/compile/jaxpr_to_mlir_module_duration", 0.2, fun_name="jit(train)")
        counted("/jax/compilation_cache/cache_hits")
        timed("/jax/core/compile/backend_compile_duration", 0.3, fun_name="jit(train)")
        timed("/jax/something/else", 9.0)
    first, second = compiler.events(4, "steps")
    assert (first.name, first.total_ns, first.backend_ns) == ("train", 600 * MS, 300 * MS)
    assert (first.reason, second.reason) == ("", "new shapes or types")
    assert (first.hits, second.hits, second.step) == (1, 1, 4)
    assert list(compiler.events(5, "steps")) == []
    compiler.detach()
    assert not monitoring.timed
    assert not monitoring.counted


def test_a_jax_without_the_events_is_known_to_lack_them(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, JAX_MODULE, ModuleType(JAX_MODULE))
    compiler = JaxCompiler()
    compiler.attach(lambda *_: None, lambda: None, lambda end: end())
    assert len(compiler.unknown) == 2
    compiler.detach()


def test_a_compilation_that_is_only_reported_at_its_end_has_its_step(compiler) -> None:
    def in_step(step: int) -> None:
        if step == 6:
            compiler.done_at_end(lambda: compiler.done.append(5 * MS) or True)

    report = run_with(compiler, in_step)
    assert [event.step for event in report.snapshot.compilations.events] == [6]
    assert not report.snapshot.phase_ns("compile")
