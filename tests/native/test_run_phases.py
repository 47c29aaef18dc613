"""Phases of the run: each call, section and moment is recorded in its phase."""

from __future__ import annotations

import threading
import time

import pytest
from fastprof._core import Recorder, profile_section
from fastprof.capture.convert import take_snapshot
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot
from fastprof.snapshot.run_phases import RUN_PHASES

STEPS, SETUP, WARMUP, VALIDATION, CHECKPOINT, OUTSIDE, UNPROFILED = range(7)
MS = 1_000_000


def work(seconds: float = 0.0) -> None:
    time.sleep(seconds)


def loop(recorder: Recorder) -> None:
    work()
    recorder.mark()
    recorder.set_phase(STEPS)
    for step in range(6):
        with profile_section("forward"):
            work()
            if step == 4:
                before = recorder.set_phase(VALIDATION)
                with profile_section("eval"):
                    work(0.05)
                recorder.set_phase(before)
        recorder.step()
    recorder.set_phase(OUTSIDE)
    work()
    work()


def record(backend: str) -> tuple[Snapshot, int]:
    """Return a recording, and the time in which its hook was being set and removed, in ns."""
    recorder = Recorder(backend=backend, skip_steps=2)
    recorder.set_phase(SETUP)
    began = time.perf_counter_ns()
    recorder.start_sections()
    recorder.enable()
    switching = time.perf_counter_ns() - began
    loop(recorder)
    began = time.perf_counter_ns()
    recorder.disable()
    recorder.stop_sections()
    switching += time.perf_counter_ns() - began
    return take_snapshot(recorder), switching


@pytest.fixture
def recorded(backend: str) -> Snapshot:
    return record(backend)[0]


def calls(snapshot: Snapshot, name: str) -> int:
    return sum(
        tree.nodes.calls[i]
        for tree in snapshot.threads
        for i, key in enumerate(tree.nodes.key)
        if snapshot.keys[key].name == name
    )


def test_the_names_are_in_the_order_of_their_numbers() -> None:
    expected = (
        "steps", "setup", "warmup", "validation", "checkpoint", "outside", "unprofiled",
        "unhooked", "windows", "compile",
    )  # fmt: skip
    assert expected == RUN_PHASES
    with pytest.raises(ValueError, match="allowed are 0 to 9"):
        Recorder().set_phase(len(RUN_PHASES))


def test_calls_count_in_the_phase_in_which_they_began(recorded) -> None:
    of_phase = {name: calls(recorded.only(name), "work") for name in RUN_PHASES}
    assert of_phase == {
        "setup": 1, "warmup": 2, "steps": 4, "validation": 1, "checkpoint": 0, "outside": 2,
        "unprofiled": 0, "unhooked": 0, "windows": 0, "compile": 0,
    }  # fmt: skip
    assert calls(recorded, "work") == 10
    assert calls(recorded.only("steps", "warmup"), "work") == 6


def test_a_call_that_goes_on_has_its_caller_in_each_phase(recorded) -> None:
    for name in ("setup", "warmup", "steps", "validation", "outside"):
        report = build_report(recorded, phase=name)
        row = next(row for row in report.functions if row.name == "work")
        assert [edge.qualname for edge in row.callers] == ["loop"], name
    whole = build_report(recorded, phase="all")
    assert next(row for row in whole.functions if row.name == "loop").calls == 1


def test_sections_are_apart(recorded) -> None:
    rows = {(recorded.keys[s.key].name, RUN_PHASES[s.phase]): s.count for s in recorded.sections}
    assert rows == {("forward", "warmup"): 2, ("forward", "steps"): 4, ("eval", "validation"): 1}
    report = build_report(recorded)
    assert report.phase == "steps"
    assert [(row.name, row.count) for row in report.sections] == [("forward", 4)]


def test_steps_are_without_the_time_of_other_phases(recorded) -> None:
    steps = recorded.steps
    assert (steps.count, steps.skipped) == (6, 2)
    assert recorded.phase_ns("validation") >= 50 * MS
    # A phase and a step read the clock a moment apart.
    assert steps.sum_ns <= recorded.phase_ns("steps") + MS
    assert sum(ns for _, ns in steps.split) == steps.sum_ns
    assert sum(row.sum_ns for row in steps.rows) <= steps.sum_ns


def test_time_adds_up(backend: str) -> None:
    recorded, switching = record(backend)
    assert sum(p.wall_ns for p in recorded.phases) == pytest.approx(recorded.duration_ns, abs=10)
    (tree,) = recorded.threads
    by_phase = [sum(recorded.only(name).threads[0].nodes.self_ns) for name in RUN_PHASES]
    assert sum(by_phase) == sum(tree.nodes.self_ns)
    for name, ns in zip(RUN_PHASES, by_phase, strict=True):
        assert ns == pytest.approx(recorded.phase_ns(name), rel=0.02, abs=2 * MS + switching)


def test_it_is_read_back_as_it_was(recorded) -> None:
    assert Snapshot.from_dict(recorded.to_dict()) == recorded


def test_a_recording_without_phases_is_one_of_steps(recorded) -> None:
    data = recorded.to_dict()
    data["phases"] = []
    for tree in data["threads"]:
        tree["phase"], tree["idle_ns"] = [], []
    for row in data["sections"]:
        row["phase"] = 0
    plain = Snapshot.from_dict(data)
    assert build_report(plain).phase == "all"
    assert calls(plain.only("steps"), "work") == 10


def test_the_error_names_an_unknown_phase(recorded) -> None:
    with pytest.raises(ValueError, match="'checkpoint' of the run; there are: steps"):
        build_report(recorded, phase="checkpoint")
    with pytest.raises(ValueError, match="no phase of the run is called 'epoch'"):
        recorded.only("epoch")


def test_every_thread_is_in_the_phase_of_the_run(backend) -> None:
    recorder = Recorder(backend=backend, skip_steps=0)
    go, done = threading.Semaphore(0), threading.Semaphore(0)

    def worker() -> None:
        for _ in range(3):
            go.acquire()
            work()
            done.release()

    recorder.start_sections()
    recorder.enable()
    thread = threading.Thread(target=worker)
    thread.start()
    for phase in (SETUP, STEPS, VALIDATION):
        recorder.set_phase(phase)
        go.release()
        done.acquire()
    thread.join()
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    for name in ("setup", "steps", "validation"):
        report = build_report(snapshot, phase=name)
        row = next(row for row in report.functions if row.name == "work")
        assert row.calls == 1, name
        assert any(edge.qualname.endswith("worker") for edge in row.callers), name


def test_clear_forgets_the_time_and_stays_in_the_phase(backend) -> None:
    recorder = Recorder(backend=backend, skip_steps=0)
    recorder.start_sections()
    recorder.enable()
    recorder.set_phase(SETUP)
    work(0.02)
    recorder.clear()
    work()
    assert recorder.set_phase(STEPS) == SETUP
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    assert snapshot.phase_ns("setup") < 15 * MS
    assert calls(snapshot.only("setup"), "work") == 1


def test_the_phase_may_change_while_calls_are_not_recorded(backend) -> None:
    recorder = Recorder(backend=backend, skip_steps=0)
    recorder.start_sections()
    recorder.enable()

    def caller() -> None:
        with profile_section("forward"):
            work()
            recorder.pause_functions()
            recorder.set_phase(VALIDATION)
            work()
            recorder.resume_functions()
            work()
            recorder.set_phase(STEPS)
            work()

    caller()
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    for name, calls_of in (("steps", 2), ("validation", 1)):
        row = next(r for r in build_report(snapshot, phase=name).functions if r.name == "work")
        assert row.calls == calls_of, name
        assert [edge.qualname.rpartition(".")[2] for edge in row.callers] == ["caller"], name


def test_a_section_parked_in_one_phase_is_a_sample_of_that_phase() -> None:
    recorder = Recorder(skip_steps=0)
    recorder.start_sections()
    forward = profile_section("forward")
    for goes_on in (False, True):
        recorder.set_phase(STEPS)
        forward.enter_phase()
        forward.leave_later()
        time.sleep(0.01)
        forward.park()
        recorder.set_phase(VALIDATION)
        if goes_on:
            assert forward.resume()
        forward.leave_now()
    recorder.set_phase(STEPS)
    recorder.stop_sections()
    rows = {RUN_PHASES[s.phase]: (s.count, s.sum_ns) for s in take_snapshot(recorder).sections}
    assert (rows["steps"][0], rows["validation"][0]) == (1, 1)
    assert min(ns for _, ns in rows.values()) >= 10 * MS, "the time before it was parked, too"


def test_steps_that_are_measured_stay_so_when_set_up_begins_again() -> None:
    recorder = Recorder(skip_steps=0)
    recorder.start_sections()
    recorder.mark()
    for step in range(6):
        if step == 3:
            recorder.set_phase(SETUP)
        work(0.001)
        recorder.step()
    recorder.stop_sections()
    steps = take_snapshot(recorder).steps
    assert (steps.count, steps.skipped, len(steps.recent_ns)) == (6, 0, 6)
    assert steps.sum_ns == pytest.approx(sum(steps.recent_ns), abs=6)


def test_until_a_step_has_ended_another_thread_may_become_the_one_that_steps() -> None:
    recorder = Recorder()
    recorder.start_sections()
    recorder.mark()

    def steps() -> None:
        recorder.mark()
        for _ in range(3):
            with profile_section("forward"):
                pass
            recorder.step()

    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()
    recorder.step()
    recorder.mark()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    assert snapshot.steps.count == 3
    assert snapshot.threads[snapshot.steps.thread].ident == thread.ident
    assert snapshot.counters["wrong_step_thread"] == 2
