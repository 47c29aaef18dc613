"""Traces of real runs contain exactly the events of the run."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fastprof
import pytest
import trace_kit
from fastprof import Profiler, Schedule, TraceOptions, profile_section
from fastprof._core import Recorder
from fastprof.session.output.trace import trace_options

LONG = 0.002


def long_call() -> None:
    time.sleep(LONG)


def step() -> None:
    with profile_section("forward"):
        long_call()


def trace_of(profiler: Profiler) -> Any:
    made = profiler.snapshot()
    assert made.trace is not None
    return made, made.trace


def names(profiler: Profiler) -> list[str]:
    made, trace = trace_of(profiler)
    return [made.keys[key].qualname for key in trace.events.key]


def saved(profiler: Profiler, path: Path) -> dict[str, Any]:
    profiler.report().save(path)
    data = trace_kit.load(path)
    trace_kit.check(data)
    trace_kit.check_pairs(data)
    return data


@pytest.fixture(params=["setprofile", "monitoring"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "monitoring" and not hasattr(sys, "monitoring"):
        pytest.skip("needs sys.monitoring")
    return str(request.param)


def test_s0_18_a_run_as_a_trace(tmp_path: Path, backend: str) -> None:
    with Profiler(
        trace=True, recorder={"backend": backend}, output=tmp_path / "a.trace.json.gz"
    ) as profiler:
        for _ in range(3):
            step()
            profiler.step()
    data = trace_kit.load(tmp_path / "a.trace.json.gz")
    trace_kit.check(data)
    for name in ("forward", "long_call", "step"):
        assert len([e for e in trace_kit.spans(data, name) if e["dur"] >= LONG * 1e6]) == 3, name
    steps = [e["name"] for e in trace_kit.spans(data) if e["name"].startswith("Profiler")]
    assert steps == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    forward, call = trace_kit.spans(data, "forward")[0], trace_kit.spans(data, "long_call")[0]
    assert forward["ts"] <= call["ts"]
    assert call["ts"] + call["dur"] <= forward["ts"] + forward["dur"] + 0.001
    # The wall clock's time of an event is exact to well below a second.
    at = data["baseTimeNanoseconds"] + forward["ts"] * 1000
    assert abs(at - time.time_ns()) < 100e9


def test_without_it_nothing_is_traced() -> None:
    with Profiler() as profiler:
        step()
    assert profiler.snapshot().trace is None


def test_e1_windows_are_those_of_the_schedule() -> None:
    schedule = Schedule(skip_first=2, wait=1, warmup=1, active=3, repeat=2)
    with Profiler(trace=True, schedule=schedule) as profiler:
        for _ in range(14):
            step()
            profiler.step()
    _, trace = trace_of(profiler)
    assert trace.steps.number == (4, 5, 6, 9, 10, 11)
    assert [w.first_step for w in trace.windows] == [4, 9]
    assert names(profiler).count("long_call") == 6
    for window in trace.windows:
        assert window.end_ns - window.start_ns >= 3 * LONG * 1e9


def test_e1_cycles_without_a_pause_are_separate_windows() -> None:
    schedule = Schedule(skip_first=0, wait=0, warmup=0, active=2, repeat=2)
    with Profiler(trace=True, schedule=schedule) as profiler:
        for _ in range(6):
            step()
            profiler.step()
    _, trace = trace_of(profiler)
    assert [w.first_step for w in trace.windows] == [0, 2]
    assert trace.steps.number == (0, 1, 2, 3)


def test_e6_every_cycle_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    schedule = Schedule(skip_first=0, wait=1, warmup=0, active=1, repeat=3)
    options = TraceOptions(save_dir=tmp_path / "traces")
    with Profiler(trace=options, schedule=schedule) as profiler:
        for _ in range(8):
            step()
            profiler.step()
    files = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert files == ["rank2_trace.json.gz", "rank2_trace_2.json.gz", "rank2_trace_3.json.gz"]
    for i, name in enumerate(files):
        data = trace_kit.load(tmp_path / "traces" / name)
        trace_kit.check(data)
        assert data["distributedInfo"]["rank"] == 2
        assert trace_kit.spans(data, f"ProfilerStep#{2 * i + 1}")


def test_calls_below_the_limit_are_counted_and_sections_kept() -> None:
    with Profiler(trace={"min_us": 1000}) as profiler:
        for _ in range(50):
            with profile_section("short"):
                abs(1)
        long_call()
    _, trace = trace_of(profiler)
    assert names(profiler).count("short") == 50
    assert names(profiler).count("long_call") == 1
    assert trace.brief > 50
    assert "abs" not in names(profiler)
    assert any("took less than 1000 us" in note for note in profiler.report().notes)


def test_f1_an_exception_ends_what_it_leaves(tmp_path: Path, backend: str) -> None:
    def fails() -> None:
        with profile_section("risky"):
            time.sleep(LONG)
            raise KeyError

    with Profiler(trace=True, recorder={"backend": backend}) as profiler:
        for _ in range(3):
            with pytest.raises(KeyError):
                fails()
        long_call()
    data = saved(profiler, tmp_path / "x.trace.json")
    assert len(trace_kit.spans(data, "risky")) == 3
    risky = trace_kit.spans(data, "risky")[-1]
    (call,) = trace_kit.spans(data, "long_call")
    assert call["ts"] >= risky["ts"] + risky["dur"]


def test_generators_that_yield_inside_a_section(tmp_path: Path, backend: str) -> None:
    def batches() -> Any:
        for _ in range(3):
            with profile_section("inside"):
                time.sleep(LONG)
                yield
                time.sleep(LONG)

    with Profiler(trace=True, recorder={"backend": backend}) as profiler:
        for _ in batches():
            long_call()
    data = saved(profiler, tmp_path / "x.trace.json")
    inside = sum(e["dur"] for e in trace_kit.spans(data, "inside"))
    assert inside >= 9 * LONG * 1e6 * 0.99
    assert len(trace_kit.spans(data, "long_call")) == 3


def test_f15_threads_have_tracks_and_names(tmp_path: Path, backend: str) -> None:
    def work() -> None:
        with profile_section("beside"):
            long_call()

    with Profiler(trace=True, recorder={"backend": backend}) as profiler:
        threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(3)]
        for thread in threads:
            thread.start()
        profiler.step()
        for thread in threads:
            thread.join()
    data = saved(profiler, tmp_path / "x.trace.json")
    assert len({e["tid"] for e in trace_kit.spans(data, "beside")}) == 3
    assert len({e["tid"] for e in trace_kit.spans(data, "long_call")}) == 3


def test_f16_many_threads_that_end_keep_their_events(tmp_path: Path) -> None:
    with Profiler(trace={"min_us": 0}, functions=False) as profiler:
        for _ in range(200):
            thread = threading.Thread(target=profile_section("one")(abs), args=(1,))
            thread.start()
            thread.join()
    data = saved(profiler, tmp_path / "x.trace.json")
    assert len(trace_kit.spans(data, "one")) == 200


def test_what_is_open_when_it_starts_and_stops_is_cut_there(tmp_path: Path, backend: str) -> None:
    def outer(depth: int) -> None:
        if depth:
            outer(depth - 1)
            return
        profiler.start()
        profile_section("never left").__enter__()
        long_call()
        profiler.stop()

    profiler = Profiler(trace=True, recorder={"backend": backend})
    outer(5)
    data = saved(profiler, tmp_path / "x.trace.json")
    (open_,) = trace_kit.spans(data, "never left")
    assert open_["dur"] >= LONG * 1e6
    assert trace_kit.spans(data, "long_call")
    # They began before the recording; the trace shows them from its start on.
    outers = [e for e in trace_kit.spans(data) if e["name"].rsplit(".", 1)[-1] == "outer"]
    assert len(outers) == 6
    assert all(e["ts"] <= open_["ts"] and e["dur"] >= open_["dur"] for e in outers)


def test_a_function_under_way_when_a_window_begins_is_in_it(backend: str) -> None:
    recorder = Recorder(backend=backend)

    def program() -> None:
        time.sleep(0)
        recorder.trace_open(min_ns=0)
        long_call()
        recorder.trace_close()

    recorder.start_sections()
    recorder.enable()
    program()
    recorder.disable()
    recorder.stop_sections()
    data = recorder.export(trace=True)
    keys, _, start, end = data["trace"]["events"]
    found = {data["keys"][key][3]: (a, b) for key, a, b in zip(keys, start, end, strict=True)}
    window = data["trace"]["windows"][0]
    assert found["program"] == (window[0], window[1])


def test_f32_a_full_trace_keeps_the_last_and_says_so(tmp_path: Path) -> None:
    with Profiler(trace={"max_events": 100, "min_us": 0}, functions=False) as profiler:
        for _ in range(500):
            with profile_section("many"):
                pass
        with profile_section("last"):
            pass
    made, trace = trace_of(profiler)
    assert len(trace.events) == 100
    assert (trace.kept, trace.lost) == (501, 401)
    assert made.keys[trace.events.key[-1]].name == "last"
    assert trace.lost_until_ns <= trace.events.start_ns[0] + trace.events.ns[0]
    assert any("401 earlier events" in note for note in profiler.report().notes)
    saved(profiler, tmp_path / "x.trace.json")


def test_memory_of_a_trace_is_bounded_and_reported() -> None:
    recorder = Recorder()
    recorder.start_sections()
    before = recorder.memory()["bytes"]
    recorder.trace_open(min_ns=0, max_events=1000)
    section = profile_section("bounded")
    for _ in range(20_000):
        with section:
            pass
    grown = recorder.memory()["bytes"] - before
    recorder.stop_sections()
    assert 1000 * 32 <= grown < 200_000


def test_f19_a_forked_child_writes_no_trace(tmp_path: Path) -> None:
    with Profiler(trace={"save_dir": tmp_path}) as profiler:
        step()
        child = os.fork()
        if child == 0:
            step()
            profiler.stop()
            os._exit(0 if not os.listdir(tmp_path) else 1)
        assert os.waitpid(child, 0)[1] == 0
        step()
        profiler.step()
    assert os.listdir(tmp_path) == ["rank0_trace.json.gz"]
    trace_kit.check(trace_kit.load(tmp_path / "rank0_trace.json.gz"))


def test_f19_a_forked_child_has_no_events_of_its_parent() -> None:
    recorder = Recorder()
    recorder.start_sections()
    recorder.trace_open(min_ns=0)
    step()
    child = os.fork()
    if child == 0:
        ours = recorder.export(trace=True)["trace"]
        os._exit(0 if ours["kept"] == 0 and ours["windows"] == ours["events"][0] == [] else 1)
    assert os.waitpid(child, 0)[1] == 0
    recorder.stop_sections()
    assert recorder.export(trace=True)["trace"]["kept"] == 1


def test_a_window_ends_with_the_last_layer(backend: str) -> None:
    recorder = Recorder(backend=backend)
    recorder.enable()
    recorder.trace_open(min_ns=0)
    long_call()
    recorder.disable()
    ((_start, end, _step, _wall),) = recorder.export(trace=True)["trace"]["windows"]
    assert end is not None
    # An open window had lost its log after the second __init__().
    recorder.__init__(backend=backend)  # type: ignore[misc]
    recorder.enable()
    long_call()
    recorder.disable()
    assert recorder.export(trace=True)["trace"] is None


def test_a_window_outlives_one_of_two_layers(backend: str) -> None:
    recorder = Recorder(backend=backend)
    recorder.start_sections()
    recorder.enable()
    recorder.trace_open(min_ns=0)
    recorder.disable()
    step()
    ((_start, end, _step, _wall),) = recorder.export(trace=True)["trace"]["windows"]
    assert end is None
    recorder.stop_sections()
    ((_start, end, _step, _wall),) = recorder.export(trace=True)["trace"]["windows"]
    assert end is not None


def test_f40_a_directory_that_cannot_be_written_costs_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "traces"
    with Profiler(trace={"save_dir": place}) as profiler:
        place.write_text("in the way")
        step()
    assert "trace" in caplog.text
    assert profiler.snapshot().counters["trace_errors"] == 1


def test_f5_functions_may_be_switched_off_within_a_window(tmp_path: Path, backend: str) -> None:
    def outer() -> None:
        long_call()
        profiler._run.stop_functions("of the test")
        time.sleep(LONG)

    with Profiler(trace=True, recorder={"backend": backend}) as profiler:
        outer()
        step()
    data = saved(profiler, tmp_path / "x.trace.json")
    (call,) = [e for e in trace_kit.spans(data) if e["name"].rsplit(".", 1)[-1] == "outer"]
    assert LONG * 1e6 <= call["dur"] < 2 * LONG * 1e6 * 50
    (forward,) = trace_kit.spans(data, "forward")
    # The sum of two times in µs is not exact.
    ends_at = trace_kit.ns(call["ts"]) + trace_kit.ns(call["dur"])
    assert trace_kit.ns(forward["ts"]) >= ends_at


def test_a_snapshot_may_be_taken_within_a_window(tmp_path: Path) -> None:
    with Profiler(trace=True) as profiler:
        step()
        profiler.step()
        _, early = trace_of(profiler)
        step()
        profiler.step()
    _, late = trace_of(profiler)
    assert early.steps.number == (0,)
    assert late.steps.number == (0, 1)
    assert early.windows[0].end_ns < late.windows[0].end_ns
    saved(profiler, tmp_path / "x.trace.json")


def test_a_recorder_refuses_what_it_cannot_trace() -> None:
    with pytest.raises(RuntimeError, match="nothing is recorded"):
        Recorder().trace_open()
    with pytest.raises(ValueError, match="timer"):
        Recorder(time.perf_counter).trace_open()
    recorder = Recorder()
    recorder.start_sections()
    for wrong in ({"min_ns": -1}, {"max_events": 0}):
        with pytest.raises(ValueError, match="min_ns is"):
            recorder.trace_open(**wrong)
    recorder.trace_close()
    recorder.trace_open()
    recorder.trace_open()
    recorder.clear()
    with profile_section("after"):
        pass
    recorder.stop_sections()
    data = recorder.export(trace=True)
    assert [data["keys"][key][3] for key in data["trace"]["events"][0]] == ["after"]
    assert len(data["trace"]["windows"]) == 1
    assert recorder.export()["trace"] is None


def test_a_window_that_clear_begins_anew_knows_the_wall_clock() -> None:
    recorder = Recorder()
    recorder.start_sections()
    recorder.mark()
    recorder.step()
    recorder.trace_open()
    before = time.time_ns()
    recorder.clear()
    after = time.time_ns()
    recorder.stop_sections()
    ((start_ns, end_ns, first_step, wall_ns),) = recorder.export(trace=True)["trace"]["windows"]
    assert first_step == 0
    # Readings by different clocks agree to a microsecond or so.
    assert before - 10_000 <= wall_ns <= after + 10_000
    assert 0 <= start_ns <= end_ns


def test_the_first_step_begins_when_set_up_ends(tmp_path: Path, backend: str) -> None:
    prof = Profiler(gpu=False, recorder={"backend": backend}, trace=TraceOptions(save_dir=tmp_path))
    with prof:
        prof.enter_phase("setup")
        long_call()
        prof.leave_phase("setup")
        for _ in range(2):
            step()
            prof.step()
        prof.enter_phase("setup")
        long_call()
        prof.leave_phase("setup")
        prof.step()
    data = trace_kit.load(tmp_path / "rank0_trace.json.gz")
    first, *_, last = sorted(trace_kit.spans(data, "long_call"), key=lambda call: call["ts"])
    steps = {name: trace_kit.spans(data, f"ProfilerStep#{name}")[0] for name in (0, 2)}
    assert steps[0]["ts"] >= first["ts"] + first["dur"]
    assert steps[2]["ts"] <= last["ts"]  # a later set-up interrupts a step
    assert prof.report().steps.count == 3


def test_s0_18_run_with_trace(tmp_path: Path) -> None:
    from helpers import run_command

    program = tmp_path / "train.py"
    program.write_text(
        "import time\ndef work():\n    time.sleep(0.002)\nfor _ in range(3):\n    work()\n"
    )
    command = "import sys; from fastprof.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["run", "--trace", "--functions", "-o", "out", str(program)]
    done = run_command([sys.executable, "-c", command, *arguments], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    data = trace_kit.load(tmp_path / "out" / "rank0_trace.json.gz")
    trace_kit.check(data)
    assert len(trace_kit.spans(data, "work")) == 3
    loaded = fastprof.load(tmp_path / "out" / "train_profile.fprof")
    assert loaded.snapshot.trace is not None


def test_options_are_checked() -> None:
    assert trace_options(False) is None
    assert trace_options(True) == TraceOptions()
    assert trace_options({"min_us": 5, "max_events": 10}) == TraceOptions(min_us=5, max_events=10)
    for wrong in ({"min_us": -1}, {"max_events": 0}, {"merge": "x"}, {"min_us": float("nan")}):
        with pytest.raises(ValueError, match=r"min_us|max_events|merge"):
            trace_options(wrong)
    for wrong_type in ("yes", 1, {"min": 5}, {"max_events": True}):
        with pytest.raises(TypeError, match="trace"):
            trace_options(wrong_type)


def test_a_trace_of_torch_profiler_is_put_at_its_time(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from fastprof.export.trace.merge import merge

    theirs = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with Profiler(trace=True, functions=False, gpu=False) as profiler, theirs:
        for i in range(20):
            with torch.profiler.record_function(f"torch {i}"), profile_section(f"ours {i}"):
                time.sleep(LONG)
    theirs.export_chrome_trace(str(tmp_path / "torch.json"))
    merge(profiler.report(), tmp_path / "torch.json", tmp_path / "both.trace.json.gz")
    found = {e["name"]: e for e in trace_kit.spans(trace_kit.load(tmp_path / "both.trace.json.gz"))}
    for i in range(1, 20):
        outer, inner = found[f"torch {i}"], found[f"ours {i}"]
        # One is inside the other, except for the difference of the two clocks.
        assert outer["ts"] <= inner["ts"] + 500
        assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 500
