"""The run itself: start, stop, options, errors, and survived faults."""

from __future__ import annotations

import atexit
import gc
import inspect
import io
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import fastprof
import pytest
from fastprof import profile_section
from fastprof.ranks.exchange.live import LiveRanks
from fastprof.ranks.row import rank_run
from fastprof.report.threads import training_thread
from fastprof.session.environment.cpu_use import CpuUse
from fastprof.session.loaders.results import LoaderResults
from fastprof.session.output.emitter import MetricEmitter
from fastprof.session.output.periodic import timings
from fastprof.session.output.trace import TraceWindows
from fastprof.session.profiler import run_of
from helpers import run_child


def counts(prof: fastprof.Profiler) -> dict[str, int]:
    return {row.name: row.count for row in timings(prof.snapshot())}


def test_sections_and_steps_are_recorded_between_start_and_stop() -> None:
    with profile_section("before"):
        pass
    with fastprof.Profiler() as prof:
        assert prof.running
        for _ in range(10):
            with profile_section("forward"), prof.section("inner"):
                pass
            prof.step()
    assert not prof.running
    with profile_section("after"):
        pass
    assert counts(prof) == {"forward": 10, "inner": 10}
    assert prof.steps == 10
    assert prof.snapshot().steps.count == 10
    assert prof.snapshot().steps.skipped == 3


def test_a_profiler_for_each_epoch_does_not_make_the_program_grow() -> None:
    """3,000 of them took 45 MB.  A leak grows in every batch; a cache does not."""
    child = run_child("""
import array, gc, os, sys
import fastprof

def work(): return sum(range(10))

def kilobytes():
    if not os.path.exists("/proc/self/statm"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024

def batch():
    for _ in range(50):
        prof = fastprof.Profiler(gpu=False)
        prof.start()
        with fastprof.profile_section("forward"):
            work()
        prof.step()
        prof.stop()
    del prof
    gc.collect()
    return sys.getallocatedblocks(), kilobytes()

# Numbers in a list would be blocks themselves.
blocks, memory = array.array("q", [0] * 8), array.array("q", [0] * 8)
for i in range(8):
    blocks[i], memory[i] = batch()
grown = [[b - a for a, b in zip(row, row[1:])] for row in (blocks, memory)]
assert min(grown[0]) < 40 and min(grown[1]) < 200, grown  # of 50
""", timeout=120)  # fmt: skip
    child.check()


def test_start_and_stop_work_as_the_context_manager_does() -> None:
    prof = fastprof.Profiler(functions=False)
    assert prof.start() is prof
    with profile_section("x"):
        pass
    prof.stop()
    prof.stop()
    assert counts(prof) == {"x": 1}


def test_starting_twice_is_a_clear_error() -> None:
    with fastprof.Profiler(functions=False) as prof:
        with pytest.raises(
            fastprof.errors.StateError, match=r"already running, started at .*test_prof"
        ):
            prof.start()
        assert prof.running
    with pytest.raises(fastprof.errors.StateError, match="create another"):
        prof.start()


def test_the_error_of_a_second_profiler_names_where_the_first_was_started() -> None:
    with fastprof.Profiler(functions=False) as first:
        with pytest.raises(fastprof.errors.StateError, match=r"started at .*test_profiler\.py:\d+"):
            fastprof.Profiler().start()
        with profile_section("x"):
            pass
        assert first.step() == 1
    assert counts(first) == {"x": 1}
    with fastprof.Profiler(functions=False):
        pass


def test_step_outside_a_run_is_a_clear_error() -> None:
    prof = fastprof.Profiler(functions=False)
    with pytest.raises(fastprof.errors.StateError, match=r"before start\(\)"):
        prof.step()
    with prof:
        prof.step()
    with pytest.raises(fastprof.errors.StateError, match=r"after stop\(\)"):
        prof.step()


def test_the_module_function_step_does_nothing_when_nothing_records() -> None:
    assert fastprof.step() == 0
    with fastprof.Profiler(functions=False) as prof:
        assert fastprof.step() == 1
        assert prof.step() == 2
    assert fastprof.step() == 0


def test_enabled_false_makes_every_method_do_nothing() -> None:
    prof = fastprof.Profiler(enabled=False)
    batches = [1, 2]
    with prof:
        assert prof.loader(batches, "main") is batches
        with profile_section("x"):
            pass
        assert prof.step() == 0
        with fastprof.Profiler(functions=False) as other:
            prof.step()
    assert other.steps == 0
    assert prof.snapshot().sections == ()
    assert any("switched off" in note for note in prof.snapshot().notes)


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("functions", "yes", ValueError),
        ("functions", 1, ValueError),
        ("gpu", 1, ValueError),
        ("gpu", "cupti", ValueError),
        ("memory", True, ValueError),
        ("memory", "steps", ValueError),
        ("nvtx", "on", ValueError),
        ("sync", "rocm", ValueError),
        ("log_every", -1, ValueError),
        ("log_every", 2.5, TypeError),
        ("log_every", True, TypeError),
        ("skip_first", -1, ValueError),
        ("skip_first", "3", TypeError),
        ("recorder", 3, TypeError),
        ("schedule", {"wait": 1}, TypeError),
        ("output", 5, TypeError),
        ("output", "", ValueError),
        ("output", "a\0b", ValueError),
        ("output", [b"x"], TypeError),
        ("output", "/no/such/directory/x.fprof", FileNotFoundError),
        ("output", "/", IsADirectoryError),
    ],
)
def test_bad_options_are_refused_before_anything_starts(option, value, error) -> None:
    with pytest.raises(error, match=option):
        fastprof.Profiler(**{option: value})


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("backend", "ptrace", ValueError),
        ("max_nodes", 0, ValueError),
        ("max_depth", None, TypeError),
        ("max_node", 20, ValueError),
    ],
)
def test_bad_options_of_the_recorder_are_refused_by_name(option, value, error) -> None:
    with pytest.raises(error, match=option):
        fastprof.Profiler(recorder={option: value})


def test_options_of_the_recorder_as_a_value_and_as_a_dict_are_the_same() -> None:
    options = fastprof.RecorderOptions(max_nodes=32)
    for recorder in (options, {"max_nodes": 32}):
        assert fastprof.Profiler(recorder=recorder)._run._options.recorder == options


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"log_every": -1}, ValueError),
        ({"sort": "name"}, ValueError),
        ({"stream": "out.txt"}, TypeError),
    ],
)
def test_bad_options_of_printed_reports_are_refused_by_name(options, error) -> None:
    with pytest.raises(error, match=next(iter(options))):
        fastprof.start_training_profiling(**options)


def test_options_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        fastprof.Profiler(True)  # type: ignore[misc]


def test_functions_are_recorded_under_the_section_that_called_them() -> None:
    def work() -> int:
        return sum(range(10))

    with fastprof.Profiler(functions=True) as prof:
        for _ in range(5):
            with profile_section("forward"):
                work()
    snapshot = prof.snapshot()
    parents = set()
    calls = 0
    for thread in snapshot.threads:
        for row, key in enumerate(thread.nodes.key):
            if snapshot.keys[key].name == "work":
                calls += thread.nodes.calls[row]
                parents.add(snapshot.keys[thread.nodes.key[thread.nodes.parent[row]]].name)
    assert calls == 5
    assert parents == {"forward"}


def busy_hook():
    """Let another fastprof recorder hold the hook."""
    from fastprof.capture.options import RecorderOptions

    return RecorderOptions().create()


def test_f7_functions_auto_goes_on_without_when_the_hook_is_taken() -> None:
    other = busy_hook()
    other.enable()
    try:
        with fastprof.Profiler(functions="auto") as prof:
            with profile_section("x"):
                pass
        assert counts(prof) == {"x": 1}
        assert any("Functions were not recorded" in note for note in prof.snapshot().notes)
    finally:
        other.disable()


def test_f7_functions_true_raises_and_leaves_nothing_behind() -> None:
    other = busy_hook()
    other.enable()
    try:
        with pytest.raises(fastprof.errors.BusyError):
            fastprof.Profiler(functions=True).start()
        with fastprof.Profiler(functions=False) as prof:
            with profile_section("x"):
                pass
        assert counts(prof) == {"x": 1}
    finally:
        other.disable()


def test_f1_an_exception_leaves_the_run_stopped_and_its_time_recorded() -> None:
    prof = fastprof.Profiler(functions=False)

    def train() -> None:
        with prof, profile_section("x"):
            time.sleep(0.002)
            raise LookupError

    with pytest.raises(LookupError):
        train()
    assert not prof.running
    (row,) = prof.snapshot().sections
    assert (row.count, row.errors) == (1, 1)
    assert row.sum_ns >= 2_000_000


def test_report_can_be_had_during_the_run() -> None:
    with fastprof.Profiler(functions=False) as prof:
        for step in range(1, 4):
            with profile_section("x"):
                pass
            prof.step()
            assert prof.report().section("x").count == step
    assert "x" in prof.report().to_text(full=True)


def test_sections_of_other_threads_are_in_the_report() -> None:
    def work() -> None:
        for _ in range(100):
            with profile_section("in_thread"):
                pass

    with fastprof.Profiler(functions=False) as prof:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts(prof) == {"in_thread": 400}


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("broken pipe")


def test_f40_a_broken_stream_is_reported_once_and_the_training_goes_on(caplog) -> None:
    with fastprof.start_training_profiling(2, stream=Broken()) as run:
        prof = run.profiler
        for _ in range(10):
            prof.step()
    assert prof.steps == 10
    assert [r.name for r in caplog.records] == ["fastprof"]
    assert prof.snapshot().counters["stream_errors"] == 1


def test_p9_reports_go_on_where_the_program_is_at_its_recursion_limit() -> None:
    class TooDeepOnce(io.StringIO):
        deep = True

        def write(self, text: str) -> int:
            if self.deep:
                self.deep = False
                raise RecursionError("maximum recursion depth exceeded")
            return super().write(text)

    stream = TooDeepOnce()
    with fastprof.start_training_profiling(2, stream=stream) as run:
        for _ in range(10):
            run.profiler.step()
    assert stream.getvalue()
    assert run.profiler.snapshot().counters["stream_errors"] == 1


def test_p9_even_a_broken_log_handler_does_not_reach_the_training(monkeypatch) -> None:
    import logging

    def raising(*args, **kwargs):
        raise ValueError("no log")

    monkeypatch.setattr(logging.getLogger("fastprof"), "warning", raising)

    class BadError(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    def logger(metrics, step):
        raise BadError

    with fastprof.Profiler(functions=False, logger=logger, log_every=1) as prof:
        for _ in range(3):
            with profile_section("forward"):
                pass
            prof.step()
    assert prof.steps == 3
    assert prof.snapshot().counters["logger_errors"] == 1


def test_p9_an_interrupt_in_the_logger_is_the_users_and_passes(caplog) -> None:
    def logger(metrics, step):
        raise KeyboardInterrupt

    prof = fastprof.Profiler(functions=False, logger=logger, log_every=1)
    with prof:
        with profile_section("forward"):
            pass
        with pytest.raises(KeyboardInterrupt):
            prof.step()
        assert prof.running


def test_output_is_saved_at_the_end_and_f41_means_what_it_meant_at_the_start(
    tmp_path, monkeypatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    with fastprof.Profiler(functions=False, output=["run.fprof", "run.json"]) as prof:
        with profile_section("x"):
            pass
        os.chdir(elsewhere)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["run.fprof", "run.json"]
    assert list(elsewhere.iterdir()) == []
    assert fastprof.load(tmp_path / "run.fprof").section("x").count == 1
    json.loads((tmp_path / "run.json").read_text(), parse_constant=pytest.fail)
    assert prof.snapshot().notes == fastprof.load(tmp_path / "run.fprof").snapshot.notes


def test_f40_output_that_cannot_be_written_costs_the_file_not_the_training(
    tmp_path, caplog
) -> None:
    target = tmp_path / "gone" / "run.fprof"
    target.parent.mkdir()
    with fastprof.Profiler(functions=False, output=target) as prof:
        with profile_section("x"):
            pass
        target.parent.rmdir()
    assert not target.exists()
    assert [r.name for r in caplog.records] == ["fastprof"]
    assert prof.snapshot().counters["save_errors"] == 1
    prof.report().save(tmp_path / "saved_elsewhere.fprof")
    assert fastprof.load(tmp_path / "saved_elsewhere.fprof").section("x").count == 1


def test_f40_a_path_that_fails_in_between_is_tried_again_only_at_the_end(
    tmp_path, caplog, monkeypatch
) -> None:
    monkeypatch.setattr("fastprof.session.output.files.SAVE_EVERY_S", 0.0)
    target = tmp_path / "gone" / "run.fprof"
    target.parent.mkdir()
    kept = tmp_path / "kept.fprof"
    with fastprof.Profiler(functions=False, output=[target, kept]) as prof:
        target.parent.rmdir()
        for _ in range(5):
            prof.step()
        assert prof.snapshot().counters["save_errors"] == 1
        target.parent.mkdir()
    assert len(caplog.records) == 1
    assert fastprof.load(target).steps.count == fastprof.load(kept).steps.count == 5


def test_f37_runs_do_not_pile_up_exit_handlers() -> None:
    with fastprof.Profiler(functions=False):
        before = atexit._ncallbacks()
    for _ in range(20):
        with fastprof.Profiler(functions=False):
            pass
    assert atexit._ncallbacks() == before


def test_f42_every_rank_has_its_own_file(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with fastprof.Profiler(functions=False, output=tmp_path / "run.fprof"):
            pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rank0_run.fprof", "rank1_run.fprof"]


def test_f22_the_run_is_saved_in_between(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("fastprof.session.output.files.SAVE_EVERY_S", 0.0)
    target = tmp_path / "run.fprof"
    with fastprof.Profiler(functions=False, output=target) as prof:
        prof.step()
        assert fastprof.load(target).steps.count == 1
    assert prof.snapshot().counters.get("save_errors") is None


def test_f22_saving_in_between_takes_one_percent_of_the_time_at_most() -> None:
    from fastprof.session.environment.rank import Identity
    from fastprof.session.faults import Faults
    from fastprof.session.output.files import Outputs

    now = [0.0]
    saved = []

    class SlowReport:
        def save(self, path) -> None:
            saved.append(now[0])
            now[0] += 5.0

    outputs = Outputs((__file__,), Faults(), SlowReport, Identity(), clock=lambda: now[0])
    outputs.begin()
    count = asked = 0
    while now[0] < 2000:
        count += 1
        if count >= outputs.next_step(count - 1):
            outputs.at_step(count)
            asked += 1
        now[0] += 0.125
    # 5 s of saving are 1 % of the 500 s to the next one.
    assert len(saved) == 4
    for at, due in zip(saved, [60.0, 565.0, 1070.0, 1575.0], strict=True):
        assert due <= at < due + 12
    # Short steps are not asked each.
    assert asked < count / 4


@pytest.mark.parametrize("junk", ["", "abc", "-1", "1e9", "99999999999999999999", "½", "../0"])
def test_f48_a_junk_rank_in_the_environment_is_rank_0(junk, monkeypatch) -> None:
    from fastprof.session.environment.rank import Identity

    monkeypatch.setenv("RANK", junk)
    monkeypatch.setenv("WORLD_SIZE", junk)
    assert Identity().ask() == (0, 1)


def test_what_a_run_consists_of_is_its_table_of_parts() -> None:
    run = fastprof.Profiler()._run
    assert len(vars(run)) < 20
    assert len(inspect.getsource(type(run)).splitlines()) < 350


def test_the_rank_is_in_the_snapshot(monkeypatch) -> None:
    monkeypatch.setenv("RANK", "3")
    prof = fastprof.Profiler(functions=False)
    assert prof.snapshot().meta["rank"] == 3


def test_f45_a_run_without_anything_is_a_report_without_nan(tmp_path) -> None:
    with fastprof.Profiler(functions=False) as prof:
        pass
    text = prof.report().to_text(full=True)
    assert "nan" not in text.lower().replace("financ", "")
    json.loads(prof.report().to_json(), parse_constant=pytest.fail)


def test_p7_arguments_locals_and_environment_are_not_recorded(monkeypatch) -> None:
    secret = "s3cr3t-" + "token"
    monkeypatch.setenv("API_TOKEN", secret)

    def work(argument: str) -> int:
        local = argument.upper().lower()
        return len(local)

    with fastprof.Profiler(functions=True) as prof:
        with profile_section("x"):
            work(secret)
    assert secret not in json.dumps(prof.snapshot().to_dict())


def test_an_output_of_no_known_format_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"run\.xyz"):
        fastprof.Profiler(output=tmp_path / "run.xyz")


@pytest.mark.parametrize(
    ("part", "method"),
    [
        (CpuUse, "end"),
        (LiveRanks, "end"),
        (TraceWindows, "end"),
        (LoaderResults, "finish"),
        (MetricEmitter, "emit"),
    ],
)
def test_f22_an_interrupt_while_stopping_still_saves_and_lets_the_next_one_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: type, method: str
) -> None:
    prof = fastprof.Profiler(functions=False, output=tmp_path / "run.fprof").start()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prof._run.parts.of(part), method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        prof.stop()
    assert not prof.running
    assert (tmp_path / "run.fprof").exists()
    with fastprof.Profiler(functions=False):
        pass


def test_a_dropped_profiler_frees_its_recording_without_the_collector() -> None:
    """In 3,000 runs of one process 45 MB waited for a full collection."""
    prof = fastprof.Profiler(functions=False)
    with prof:
        prof.step()
    recorder = run_of(prof).recorder
    gc.disable()
    try:
        assert recorder.export()["threads"]
        del prof
        assert not recorder.export()["threads"]
    finally:
        gc.enable()


def test_a_run_without_a_handle_is_recorded_to_its_end() -> None:
    run = run_of(fastprof.Profiler(functions=False).start())
    run.step()
    gc.collect()
    assert run.snapshot().steps.count == 1
    assert fastprof.stop() is not None


@pytest.mark.parametrize("outliers", [0, 5])
def test_all_tables_name_the_thread_that_ends_the_steps(outliers: int, tmp_path: Path) -> None:
    """The thread with most time in sections was taken for it."""
    stop = threading.Event()

    def background() -> None:
        with profile_section("prefetch"):
            stop.wait()

    def work() -> int:
        return sum(i * i for i in range(4000))

    recorder = {"outliers": outliers}
    with fastprof.Profiler(functions=True, recorder=recorder) as prof:
        thread = threading.Thread(target=background, name="prefetcher")
        thread.start()
        for _ in range(20):
            with profile_section("forward"):
                pass
            work()
            prof.step()
        stop.set()
        thread.join()
    prof.report().save(tmp_path / "run.fprof")
    snapshot = fastprof.load(tmp_path / "run.fprof").snapshot
    number = training_thread(snapshot)
    assert number == snapshot.steps.thread
    nodes = snapshot.threads[number].nodes
    assert "work" in {snapshot.keys[key].name.rpartition(".")[2] for key in nodes.key}
    assert "prefetcher" not in snapshot.threads[number].name
    ranked = replace(snapshot, meta={**snapshot.meta, "rank": 0})
    functions = {place[0].rpartition(".")[2] for place in rank_run(ranked, "0.fprof").program}
    assert "work" in functions
    assert "background" not in functions


def test_f22_a_handler_may_stop_a_run_that_is_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    prof = fastprof.Profiler(functions=False).start()
    published = []

    def stop_again(count: int) -> None:
        assert fastprof.stop() is None
        prof.stop()

    monkeypatch.setattr(prof._run.parts.of(CpuUse), "end", stop_again)
    monkeypatch.setattr(prof._run.parts.of(TraceWindows), "publish", published.append)
    prof.stop()
    assert published == [0]
    assert not prof._run.faults.counts
