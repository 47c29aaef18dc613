"""Operator windows with the real torch.profiler: steps, files, tables, and faults."""

from __future__ import annotations

import gzip
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof import profile_section
from fastprof.session.faults import Faults
from fastprof.session.function_hook import FunctionHook
from fastprof.session.operators import windows as operators_windows
from fastprof.session.operators.profile import OperatorProfile

torch = pytest.importorskip("torch")

CYCLE = fastprof.Schedule(skip_first=5, wait=2, warmup=1, active=3)
CYCLES = replace(CYCLE, repeat=2)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        yield
    torch.set_num_threads(threads)


def multiply() -> None:
    torch.mm(torch.ones(8, 8), torch.ones(8, 8))


def run(
    options: OperatorProfile, steps: int, work: Callable[[int], object] | None = None, **more: Any
) -> fastprof.Profiler:
    prof = fastprof.Profiler(**{"functions": False, "gpu": False, **more}, operators=options)
    with prof:
        for i in range(steps):
            multiply() if work is None else work(i)
            prof.step()
    return prof


def cpu(folder: Path, **options: Any) -> OperatorProfile:
    return OperatorProfile(enable_cpu_profiling=True, save_dir=folder, **options)


def traces(folder: Path) -> list[dict[str, Any]]:
    made = []
    for path in sorted(folder.glob("prof_*_pt_trace.json.gz")):
        with gzip.open(path) as stream:
            made.append(json.load(stream))
    return made


def steps_in(trace: dict[str, Any]) -> set[int]:
    marks = (re.fullmatch(r"ProfilerStep#(\d+)", e.get("name", "")) for e in trace["traceEvents"])
    return {int(mark[1]) for mark in marks if mark}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_s0_15_exactly_the_scheduled_steps_are_recorded(tmp_path: Path) -> None:
    prof = run(cpu(tmp_path, schedule=CYCLES), 30)
    assert [steps_in(trace) for trace in traces(tmp_path)] == [{8, 9, 10}, {14, 15, 16}]
    operators = prof.report().operators
    assert operators is not None
    assert operators.windows == ((8, 10), (14, 16))
    assert next(row.calls for row in operators.rows if row.name == "aten::mm") == 6


def warn_at_every_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make torch warn as 2.10 and 2.11 do: as soon as a profile is prepared, if only once."""
    kind = torch.profiler.profiler._KinetoProfile
    prepare = kind.prepare_trace

    def prepare_trace(self: Any) -> None:
        prepare(self)
        if not self.acc_events:
            warnings.warn("Profiler clears events at the end of each cycle", stacklevel=2)

    monkeypatch.setattr(kind, "prepare_trace", prepare_trace)


@pytest.mark.parametrize("warmup", [0, 1])
def test_torch_s_warning_of_cycles_is_the_program_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warmup: int
) -> None:
    warn_at_every_start(monkeypatch)
    made: list[Any] = []
    stop = torch.autograd.profiler.profile.__exit__

    def noted(self: Any, *args: Any) -> Any:
        stop(self, *args)
        made.append(self._function_events)

    monkeypatch.setattr(torch.autograd.profiler.profile, "__exit__", noted)
    schedule = fastprof.Schedule(skip_first=1, warmup=warmup, active=1, repeat=2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        prof = run(cpu(tmp_path, schedule=schedule), 8)
    assert [str(w.message) for w in told if "each cycle" in str(w.message)] == []
    operators = prof.report().operators
    assert operators is not None
    assert len(operators.windows) == 2
    assert made == [None, None]  # no event became an object when the window ended
    with pytest.warns(UserWarning, match="each cycle"), torch.profiler.profile():
        multiply()


def test_s2_05_every_cycle_is_kept(tmp_path: Path) -> None:
    options = OperatorProfile.from_profile_kwargs(
        {
            "activities": ["cpu"],
            "schedule_option": {"wait": 1, "warmup": 1, "active": 3, "repeat": 2},
            "output_trace_dir": tmp_path,
        }
    )
    run(options, 10)
    assert [steps_in(trace) for trace in traces(tmp_path)] == [{2, 3, 4}, {7, 8, 9}]


def test_cycles_without_a_pause_between_them(tmp_path: Path) -> None:
    prof = run(
        cpu(tmp_path, schedule=fastprof.Schedule(skip_first=0, warmup=0, active=2, repeat=0)), 6
    )
    operators = prof.report().operators
    assert operators is not None
    assert operators.windows == ((0, 1), (2, 3), (4, 5))
    assert [steps_in(trace) & {0, 1, 2, 3, 4, 5} for trace in traces(tmp_path)] == [
        {0, 1},
        {2, 3},
        {4, 5},
    ]


def test_s0_16_without_a_schedule_the_whole_run_is_recorded(tmp_path: Path) -> None:
    prof = run(cpu(tmp_path), 7)
    assert steps_in(traces(tmp_path)[0]) >= set(range(7))
    operators = prof.report().operators
    assert operators is not None
    assert operators.windows == ((0, 6),)
    assert next(row.calls for row in operators.rows if row.name == "aten::mm") == 7


def test_s0_17_files_of_one_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    run(cpu(tmp_path, record_shapes=True, profile_memory=True), 2)
    keys = ["cpu_memory_usage", "cpu_time_total", "self_cpu_memory_usage", "self_cpu_time_total"]
    tables = [f"prof_003_local_01_{key}{shape}.txt" for key in keys for shape in ("", "_by_shape")]
    trace = "prof_003_local_01_pt_trace.json.gz"
    assert names(tmp_path) == sorted([*tables, trace, "profile_stats.txt"])
    assert traces(tmp_path)[0]["traceEvents"]


def test_s0_17_tables_descend_by_their_key(tmp_path: Path) -> None:
    def work(step: int) -> None:
        multiply()
        torch.randn(64, 64).exp().sum().item()

    run(cpu(tmp_path), 3, work)
    unit = {"us": 1.0, "ms": 1e3, "s": 1e6}
    for key, column in (("cpu_time_total", "CPU total"), ("self_cpu_time_total", "Self CPU")):
        lines = (tmp_path / f"prof_000_local_00_{key}.txt").read_text().splitlines()
        headers = re.split(r"  +", lines[1].strip())
        at = headers.index(column)
        cells = [re.split(r"  +", line.strip())[at] for line in lines[3:] if "::" in line]
        found = [re.fullmatch(r"([\d.]+)(\w+)", cell) for cell in cells]
        times = [float(m[1]) * unit[m[2]] for m in found if m]
        assert len(times) > 5
        assert times == sorted(times, reverse=True)


def test_s0_10_the_default_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(OperatorProfile(enable_cpu_profiling=True), 2)
    assert "prof_000_local_00_pt_trace.json.gz" in names(tmp_path / "fastprof_out")


def test_s2_04_no_directory_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prof = run(OperatorProfile(enable_cpu_profiling=True, save_dir=None), 2)
    assert names(tmp_path) == []
    assert prof.report().operators is not None


def test_s1_32_the_table_of_the_run_has_20_rows(tmp_path: Path) -> None:
    def work(step: int) -> None:
        torch.nn.functional.softmax(torch.randn(4, 4, requires_grad=True).exp(), 0).sum().backward()

    prof = run(cpu(tmp_path, row_limit=5), 3, work)
    operators = prof.report().operators
    assert operators is not None
    assert len(operators.rows) > 20
    lines = (tmp_path / "profile_stats.txt").read_text().splitlines()
    assert lines[0].startswith("Operators, most CPU time first (20 of ")
    assert len([line for line in lines[3:] if line.strip()]) == 20


def test_s0_12_row_limit_is_that_of_the_files(tmp_path: Path) -> None:
    run(cpu(tmp_path, row_limit=3), 2)
    text = (tmp_path / "prof_000_local_00_cpu_time_total.txt").read_text()
    rule = [i for i, line in enumerate(text.splitlines()) if line.startswith("---")]
    assert rule[2] - rule[1] - 1 == 3


def test_the_figures_are_those_of_torchs_own_averages(tmp_path: Path) -> None:
    seen: list[Any] = []
    options = cpu(
        tmp_path,
        record_shapes=True,
        profile_memory=True,
        with_flops=True,
        schedule=CYCLES,
        on_trace_ready=lambda profile: seen.append(profile.key_averages()),
    )

    def work(step: int) -> None:
        torch.mm(torch.ones(8, 8), torch.ones(8, 8))
        torch.mm(torch.ones(16, 8), torch.ones(8, 4))

    operators = run(options, 20, work).report().operators
    assert operators is not None
    wanted: dict[str, list[float]] = {}
    for averages in seen:
        for e in averages:
            row = wanted.setdefault(e.key, [0.0] * 6)
            for i, n in enumerate(
                (e.count, e.self_cpu_time_total / 1e3, e.cpu_time_total / 1e3, e.flops,
                 e.self_cpu_memory_usage, e.cpu_memory_usage)
            ):  # fmt: skip
                row[i] += n
    made = {
        r.name: [r.calls, r.self_cpu_ms, r.cpu_ms, r.flops, r.self_cpu_bytes, r.cpu_bytes]
        for r in operators.rows
    }
    assert len(seen) == 2
    assert made.keys() == wanted.keys()
    for name, row in made.items():
        assert row == pytest.approx(wanted[name], abs=1e-5)
    shapes = {r.shapes for r in operators.by_shape if r.name == "aten::mm"}
    assert shapes == {"[[8, 8], [8, 8]]", "[[16, 8], [8, 4]]"}


def test_s0_12_each_option_adds_what_it_says(tmp_path: Path) -> None:
    def made(name: str, **options: Any) -> tuple[dict[str, Any], Any]:
        prof = run(cpu(tmp_path / name, **options), 2)
        return traces(tmp_path / name)[0], prof.report().operators

    plain, operators = made("plain")
    assert operators.by_shape == ()
    assert {row.flops for row in operators.rows} == {row.cpu_bytes for row in operators.rows}
    assert not any("Input Dims" in e.get("args", {}) for e in plain["traceEvents"])
    assert not any(e.get("cat") == "python_function" for e in plain["traceEvents"])

    shapes, _ = made("shapes", record_shapes=True)
    assert any("Input Dims" in e.get("args", {}) for e in shapes["traceEvents"])
    memory, operators = made("memory", profile_memory=True)
    assert any(e["name"] == "[memory]" for e in memory["traceEvents"])
    assert any(row.cpu_bytes for row in operators.rows)
    stack, _ = made("stack", with_stack=True)
    assert any(
        e.get("cat") == "python_function" and "multiply" in e["name"] for e in stack["traceEvents"]
    )
    _, operators = made("flops", with_flops=True)
    assert next(r.flops for r in operators.rows if r.name == "aten::mm") == 2 * 2 * 8**3
    modules, _ = made("modules", with_modules=True)
    assert modules["with_modules"] == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
def test_s0_13_cuda_without_cuda_is_warned_about_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prof = run(cpu(tmp_path, enable_cuda_profiling=True), 2)
    assert [r.levelname for r in caplog.records if "CUDA is not available" in r.message] == [
        "WARNING"
    ]
    report = prof.report()
    assert report.operators is not None
    assert report.operators.rows
    assert any("CUDA is not available" in note for note in report.notes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
def test_s0_13_nothing_but_cuda_and_no_cuda(tmp_path: Path) -> None:
    options = OperatorProfile(enable_cuda_profiling="auto", save_dir=tmp_path)
    assert run(options, 2).report().notes == run(OperatorProfile(), 2).report().notes
    assert names(tmp_path) == []


def test_where_there_is_cuda_no_session_is_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of CPU activities alone blinds the program's own later profiles (torch 2.13)."""
    asked: list[bool] = []
    real = operators_windows.make_profile

    def make_profile(*args: Any, cuda: bool) -> Any:
        asked.append(cuda)
        return real(*args, cuda=False)  # this torch has no CUDA

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(operators_windows, "make_profile", make_profile)
    report = run(cpu(tmp_path, enable_cuda_profiling=False), 2).report()
    assert asked == [True]
    assert sum("CUDA" in note for note in report.notes) == 1
    asked.clear()
    report = run(cpu(tmp_path, enable_cuda_profiling="auto"), 2).report()
    assert asked == [True]
    assert not any("CUDA" in note for note in report.notes)


def test_s0_13_nothing_enabled_does_nothing(tmp_path: Path) -> None:
    prof = run(OperatorProfile(record_shapes=True, save_dir=tmp_path / "none"), 3)
    assert prof.report().operators is None
    assert not (tmp_path / "none").exists()


def test_a_schedule_that_never_becomes_active_ends_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prof = run(cpu(tmp_path, schedule=CYCLE), 6)
    (note,) = [n for n in prof.report().notes if "Operators" in n]
    assert "the run ended in step 6, and the first window begins with step 8" in note
    assert note in caplog.messages
    assert names(tmp_path) == []


def test_a_run_that_ends_in_the_warm_up_says_so(tmp_path: Path) -> None:
    prof = run(cpu(tmp_path, schedule=CYCLE), 7)
    (note,) = [n for n in prof.report().notes if "Operators" in n]
    assert "the run ended in step 7, and the first window begins with step 8" in note
    prof = run(cpu(tmp_path, schedule=CYCLES), 13)
    (note,) = [n for n in prof.report().notes if "Operators" in n]
    assert "ended in the warm-up of the window of steps 14 to 16" in note
    assert not torch.autograd.profiler._is_profiler_enabled


def test_a_run_that_ends_in_a_window_keeps_its_part(tmp_path: Path) -> None:
    def work(step: int) -> None:
        multiply()
        if step == 9:
            raise RuntimeError("the training failed")

    prof = fastprof.Profiler(functions=False, gpu=False, operators=cpu(tmp_path, schedule=CYCLE))

    def train() -> None:
        with prof:
            for i in range(20):
                work(i)
                prof.step()

    with pytest.raises(RuntimeError, match="the training failed"):
        train()
    operators = prof.report().operators
    assert operators is not None
    assert operators.windows == ((8, 8),)
    assert next(row.calls for row in operators.rows if row.name == "aten::mm") == 2
    assert len(traces(tmp_path)) == 1


def test_a_program_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    prof = run(cpu(tmp_path, schedule=CYCLE), 20, lambda step: None)
    assert "Operators were not recorded: the program did not import torch." in prof.report().notes


def test_torch_may_be_imported_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch")

    def work(step: int) -> None:
        if step == 8:
            sys.modules["torch"] = torch
        multiply()

    prof = run(cpu(tmp_path, schedule=CYCLE), 20, work)
    operators = prof.report().operators
    assert operators is not None
    assert operators.windows == ((9, 10),)


class TestAnotherTorchProfiler:
    """The program's own profiler has precedence, even if it began later."""

    def test_one_that_runs_already_keeps_running(self, tmp_path: Path) -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
            prof = run(cpu(tmp_path), 3)
        assert sum(e.count for e in theirs.key_averages() if e.key == "aten::mm") == 3
        report = prof.report()
        assert report.operators is not None
        assert (report.operators.lost, report.operators.rows) == (1, ())
        assert any("the program used torch.profiler itself" in note for note in report.notes)
        assert names(tmp_path) == []

    def test_one_that_begins_in_a_window_gets_what_it_wants(self, tmp_path: Path) -> None:
        theirs: list[Any] = []

        def work(step: int) -> None:
            if step == 9:
                kinds = [torch.profiler.ProfilerActivity.CPU]
                theirs.append(torch.profiler.profile(activities=kinds))
                theirs[0].start()
            multiply()
            if step == 12:
                theirs[0].stop()

        prof = run(cpu(tmp_path, schedule=CYCLES), 20, work)
        assert sum(e.count for e in theirs[0].key_averages() if e.key == "aten::mm") == 4
        operators = prof.report().operators
        assert operators is not None
        assert (operators.lost, operators.windows) == (1, ((14, 16),))

    def test_torchs_functions_are_its_own_again(self, tmp_path: Path) -> None:
        module = torch.autograd.profiler
        names = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")
        before = [getattr(module, name) for name in names]
        run(cpu(tmp_path), 2)
        assert [getattr(module, name) for name in names] == before


def test_p9_a_failing_torch_profiler_costs_the_operators_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no kineto")

    monkeypatch.setattr(torch.profiler, "profile", broken)
    prof = run(cpu(tmp_path, schedule=CYCLE), 20)
    report = prof.report()
    assert report.steps.count == 20
    assert any("Operators failed and were switched off" in note for note in report.notes)
    assert report.snapshot.counters["operator_errors"] == 1


def test_p9_a_window_is_lost_alone_where_the_program_is_at_its_recursion_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, deep = torch.profiler.profile, [True]

    def first_too_deep(*args: Any, **kwargs: Any) -> Any:
        if deep and deep.pop():
            raise RecursionError("maximum recursion depth exceeded")
        return real(*args, **kwargs)

    monkeypatch.setattr(torch.profiler, "profile", first_too_deep)
    report = run(cpu(tmp_path, schedule=CYCLE), 40).report()
    assert not any("switched off" in note for note in report.notes)
    assert report.operators.rows
    assert report.snapshot.counters["operator_errors"] == 1


def test_p9_a_torch_profiler_that_fails_half_way_does_not_stay_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object) -> None:
        raise RuntimeError("no process group")

    monkeypatch.setattr(torch.profiler.profile, "_get_distributed_info", broken)
    report = run(cpu(tmp_path, schedule=CYCLE), 20).report()
    assert any("Operators failed and were switched off" in note for note in report.notes)
    assert not torch.autograd.profiler._is_profiler_enabled
    monkeypatch.undo()
    assert run(cpu(tmp_path, schedule=CYCLE), 20).report().operators.rows


def test_f40_files_that_cannot_be_written_cost_the_files_alone(tmp_path: Path) -> None:
    options = cpu(tmp_path / "out")
    (tmp_path / "out").write_text("in the way")
    report = run(options, 2).report()
    assert report.operators is not None
    assert report.operators.rows
    assert any("Writing the operators' files failed" in note for note in report.notes)


def test_a_failing_callback_costs_nothing_else(tmp_path: Path) -> None:
    def broken(profile: object) -> None:
        raise ValueError("no disk")

    report = run(cpu(tmp_path, on_trace_ready=broken), 2).report()
    assert any("on_trace_ready failed" in note for note in report.notes)
    assert len(traces(tmp_path)) == 1


def test_what_windows_cost_is_in_no_function_and_in_no_step(tmp_path: Path) -> None:
    def work(step: int) -> None:
        with profile_section("forward"):
            multiply()

    for with_stack in (False, True):
        options = cpu(tmp_path, schedule=CYCLES, with_stack=with_stack)
        report = run(options, 20, work, functions=True).report().in_phase("all")
        names = {row.name for row in report.functions}
        assert not names & {"key_averages", "export_chrome_trace", "_build_table", "stop_trace"}
        taken = with_stack and report.meta["backend"] == "setprofile"
        calls = next(row.calls for row in report.functions if row.name == "multiply")
        assert calls == (20 - 2 * 4 if taken else 20)
        assert report.section("forward").count == 20


def test_s2_14_one_barrier_where_a_window_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: calls.append("barrier"))
    monkeypatch.setattr(torch.profiler.profile, "_get_distributed_info", lambda self: None)
    run(cpu(tmp_path / "apart", schedule=CYCLE), 20)
    assert calls == []
    run(cpu(tmp_path / "together", schedule=CYCLE, align_ranks=True), 20)
    assert calls == ["barrier"]


def test_s2_13_a_rank_that_is_not_profiled_leaves_nothing(tmp_path: Path) -> None:
    run(cpu(tmp_path / "none"), 3, enabled=False)
    assert not (tmp_path / "none").exists()


def test_the_number_of_rows_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastprof.session.operators import sums as operators_sums

    monkeypatch.setattr(operators_sums, "MAX_ROWS", 3)

    def work(step: int) -> None:
        for name in "abcdefgh":
            with torch.profiler.record_function(name):
                pass

    operators = run(cpu(tmp_path), 2, work).report().operators
    assert operators is not None
    assert len(operators.rows) <= 3 + 2
    assert any(row.name == operators_sums.OTHER for row in operators.rows)


def test_between_windows_nothing_is_due() -> None:
    options = OperatorProfile(enable_cpu_profiling=True, schedule=CYCLES, save_dir=None)
    windows = operators_windows.OperatorWindows(
        options,
        fastprof.session.faults.Faults(),
        None,
        lambda: 0,  # type: ignore[arg-type]
    )
    assert windows.next_step(0) == 7
    assert windows.next_step(10) == 13
    assert windows.next_step(16) == sys.maxsize


def test_a_hook_that_was_given_to_another_profiler_is_not_taken_back() -> None:
    class Recorder:
        backend = "setprofile"
        steps = 0
        hooked = True

        def enable(self, *, callers: bool) -> None:
            pass

        def rehook(self) -> None:
            self.hooked = True

        def pause_functions(self, *, unhook: bool = False) -> None:
            self.hooked = self.hooked and not unhook

        resume_functions = mark = disable = pause_functions

    recorder = Recorder()
    hook = FunctionHook(recorder, "auto", None, Faults())
    hook.begin()
    assert hook.take_away()
    hook.stop("of the test")
    with hook.aside():
        hook.put_back()
    assert not recorder.hooked
