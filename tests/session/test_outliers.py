"""Planted slow steps: the report shows how they differed.

The tests check only lower bounds: on a busy machine everything may take longer.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import fastprof
import pytest
from fastprof import Profiler, profile_section
from fastprof.capture.convert import take_snapshot
from fastprof.capture.options import Recorder
from fastprof.report.outliers import Outlier
from fastprof.results.report import Report, build_report
from fastprof.snapshot import Snapshot
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st

#: Slow enough to be the slowest step even on a busy machine.
SLOW_S = 0.2
STEPS = 24


def read(slow: bool) -> None:
    # Not much less: looks after each step must stay within their share of the time.
    time.sleep(SLOW_S if slow else 0.002)


def compute(times: int) -> int:
    return sum(range(1000)) if times == 1 else sum(compute(1) for _ in range(times))


def recorded(step: Callable[[int], object], functions: bool = True, **options: Any) -> Report:
    prof = Profiler(functions=functions, skip_first=0, gpu=False, recorder=options)
    with prof:
        for i in range(STEPS):
            step(i)
            prof.step()
    return prof.report()


def outlier(report: Report, index: int) -> Outlier:
    return next(o for o in report.steps.outliers if o.index == index)


def check_sums(snapshot: Snapshot) -> None:
    """Check that the rows of every kept step add up to its time, to the nanosecond."""
    assert snapshot.outliers is not None
    assert snapshot.outliers.kept
    assert Snapshot.from_dict(snapshot.to_dict()) == snapshot
    for step in snapshot.outliers.kept:
        if step.window_steps:
            assert sum(row.self_ns for row in step.rows) + step.rest_ns == step.window_ns
        if step.window_steps == 1:
            assert step.window_ns == step.wall_ns


@pytest.mark.parametrize("slow", [0, 9, STEPS - 1])
def test_a_slow_read_is_found_in_its_section_and_function(backend: str, slow: int) -> None:
    def step(i: int) -> None:
        with profile_section("data"):
            read(i == slow)
        with profile_section("forward"):
            compute(1)

    report = recorded(step, backend=backend)
    check_sums(report.snapshot)
    found = outlier(report, slow)
    assert found.wall_ms >= SLOW_S * 1e3
    assert found.ratio > 1.5
    assert found.sections[0].name == "data"
    assert found.sections[0].ms >= SLOW_S * 1e3
    first = found.functions[0]
    # If a look took longer than usual, the window may include the previous step.
    window = next(k for k in report.snapshot.outliers.kept if k.index == slow)
    assert (first.qualname, first.section) == ("time.sleep", "data")
    assert first.calls == window.window_steps
    assert first.caller.startswith("read (test_outliers.py:")
    assert first.ms >= SLOW_S * 1e3
    assert "in data: time.sleep called by read (test_outliers.py:" in found.sentences[1]
    assert "Slowest steps and what was different" in report.to_text(full=True)


def test_more_calls_than_usual_are_counted(backend: str) -> None:
    def step(i: int) -> None:
        with profile_section("forward"):
            compute(20_000 if i == 15 else 100)

    report = recorded(step, backend=backend)
    check_sums(report.snapshot)
    found = outlier(report, 15)
    assert max(f.calls for f in found.functions) >= 20_000
    assert found.sections[0].name == "forward"


def test_without_functions_the_sections_are_known() -> None:
    def step(i: int) -> None:
        with profile_section("data"):
            time.sleep(0.001)
        with profile_section("forward"), profile_section("inner"):
            read(i == 10)

    report = recorded(step, functions=False)
    check_sums(report.snapshot)
    found = outlier(report, 10)
    assert found.sections[0].name == "forward"
    assert found.functions[0].kind == "section"
    assert (found.functions[0].name, found.functions[0].section) == ("inner", "forward")
    assert found.functions[0].ms >= SLOW_S * 1e3
    assert found.sentences[1].endswith(" in forward")


def test_steps_in_a_section_and_in_a_function_that_stays_open(backend: str) -> None:
    """No part of a call over many steps is lost or counted twice."""
    prof = Profiler(skip_first=0, gpu=False, recorder={"backend": backend})

    def train() -> None:
        with profile_section("epoch"):
            for i in range(STEPS):
                read(i == 7)
                prof.step()

    with prof:
        train()
    report = prof.report()
    check_sums(report.snapshot)
    found = outlier(report, 7)
    assert found.sections[0].name == "epoch"
    assert found.functions[0].qualname == "time.sleep"
    assert found.functions[0].section == "epoch"


def test_what_other_threads_do_is_not_in_the_step(backend: str) -> None:
    waiting = threading.Event()

    def work() -> None:
        waiting.wait()
        deadline = time.monotonic() + SLOW_S
        while time.monotonic() < deadline:
            compute(1)

    def step(i: int) -> None:
        thread = threading.Thread(target=work if i == 8 else int)
        with profile_section("wait"):
            thread.start()  # takes long if all CPUs are busy
            waiting.set()
            thread.join()

    report = recorded(step, backend=backend)
    check_sums(report.snapshot)
    found = outlier(report, 8)
    assert found.sections[0].name == "wait"
    assert not any(f.qualname in ("work", "compute") for f in found.functions)


def test_tasks_that_take_turns_leave_no_time_out(backend: str) -> None:
    async def part(name: str, slow: bool) -> None:
        with profile_section(name):
            await asyncio.sleep(0.001)
            read(slow)

    async def both(i: int) -> None:
        await asyncio.gather(part("a", i == 11), part("b", False))

    report = recorded(lambda i: asyncio.run(both(i)), backend=backend)
    check_sums(report.snapshot)
    assert outlier(report, 11).functions[0].qualname == "time.sleep"


def test_functions_that_pause_in_mid_step(backend: str) -> None:
    recorder = Recorder(backend=backend, outliers=3, skip_steps=0)
    recorder.start_sections()
    recorder.enable()
    recorder.mark()
    for i in range(STEPS):
        with profile_section("data"):
            if i == 5:
                recorder.pause_functions()
            read(i in (5, 9))
            if i == 5:
                recorder.resume_functions()
        recorder.step()
    recorder.disable()
    recorder.stop_sections()
    report = build_report(take_snapshot(recorder))
    check_sums(report.snapshot)
    assert outlier(report, 5).functions[0].kind == "section"
    assert outlier(report, 9).functions[0].qualname == "time.sleep"


def test_a_recorder_that_is_cleared_in_mid_step_begins_anew(backend: str) -> None:
    recorder = Recorder(backend=backend, outliers=3, skip_steps=0)
    recorder.start_sections()
    recorder.enable()
    recorder.mark()
    read(True)
    recorder.step()
    with profile_section("data"):
        recorder.clear()
    recorder.step()
    assert take_snapshot(recorder).outliers is None
    recorder.mark()
    for i in range(STEPS):
        read(i == 5)
        recorder.step()
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    check_sums(snapshot)
    assert snapshot.outliers is not None
    (kept,) = (step for step in snapshot.outliers.kept if step.index == 5)
    assert kept.wall_ns >= SLOW_S * 1e9


def test_stopped_and_started_in_mid_step_it_stays_whole(backend: str) -> None:
    recorder = Recorder(backend=backend, outliers=3, skip_steps=0)
    recorder.start_sections()
    recorder.enable()
    recorder.mark()
    for i in range(STEPS):
        with profile_section("data"):
            if i == 6:
                recorder.disable()
                recorder.stop_sections()
                read(True)
                recorder.start_sections()
                recorder.enable()
            read(False)
        recorder.step()
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    check_sums(snapshot)
    assert snapshot.outliers is not None
    (kept,) = (step for step in snapshot.outliers.kept if step.index == 6)
    assert kept.wall_ns >= SLOW_S * 1e9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_f17_a_fork_in_mid_step_leaves_both_processes_whole(backend: str) -> None:
    def step(i: int) -> None:
        with profile_section("data"):
            if i == 9:
                pid = os.fork()
                if pid == 0:
                    try:
                        read(False)
                        os._exit(0 if fastprof.profile_section("data") is not None else 1)
                    finally:
                        os._exit(2)
                assert os.waitpid(pid, 0)[1] == 0
            read(i == 9)

    report = recorded(step, backend=backend)
    check_sums(report.snapshot)
    assert outlier(report, 9).sections[0].name == "data"


def test_f35_beyond_the_node_cap_times_still_add_up(backend: str) -> None:
    functions: dict[str, Any] = {}
    exec("".join(f"def f{i}(): pass\n" for i in range(100)), functions)

    def step(i: int) -> None:
        for name in [n for n in functions if n.startswith("f")]:
            functions[name]()
        read(i == 12)

    report = recorded(step, backend=backend, max_nodes=32)
    check_sums(report.snapshot)
    assert report.snapshot.counters["truncated"] > 0
    found = outlier(report, 12)
    assert found.functions[0].ms >= SLOW_S * 1e3


def test_0_keeps_no_slow_step_and_costs_nothing() -> None:
    report = recorded(lambda i: read(i == 5), outliers=0)
    assert report.snapshot.outliers is None
    assert report.steps.outliers == ()
    assert report.steps.max_ms is not None


def test_as_many_are_kept_as_were_asked_for() -> None:
    report = recorded(lambda i: time.sleep(0.02 if i % 4 == 3 else 0.001), outliers=2)
    assert report.snapshot.outliers is not None
    assert len(report.snapshot.outliers.kept) == 2
    check_sums(report.snapshot)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (-1, ValueError, "outliers is -1, expected 0 to 100"),
        (101, ValueError, "outliers is 101, expected 0 to 100"),
        (True, TypeError, "outliers is True, expected an integer"),
        ("5", TypeError, "outliers is '5', expected an integer"),
        (None, TypeError, "outliers is None, expected an integer"),
    ],
)
def test_what_is_no_number_of_steps_is_refused(
    value: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        Profiler(recorder={"outliers": value})


def test_the_recorder_itself_refuses_too_many() -> None:
    with pytest.raises(ValueError, match="outliers is 101: allowed are 0 to 100"):
        Recorder(outliers=101)


def test_a_run_that_is_read_while_it_goes_on(backend: str) -> None:
    """Reading the recorder between steps changes nothing."""
    prof = Profiler(skip_first=0, gpu=False, recorder={"backend": backend})
    with prof:
        for i in range(STEPS):
            with profile_section("data"):
                read(i == 9)
            prof.step()
            if i % 8 == 1:
                check_sums(prof.snapshot())
    assert outlier(prof.report(), 9).functions[0].qualname == "time.sleep"


def nothing() -> None:
    pass


OPERATIONS = st.lists(
    st.sampled_from(["call", "open", "close", "generator", "step", "pause", "resume", "mark"]),
    max_size=60,
)


@settings(max_examples=examples(60), deadline=None)
@given(OPERATIONS, st.sampled_from([16, 24, 1_000_000]), st.integers(0, 3))
def test_whatever_a_program_does_the_rows_add_up(
    operations: list[str], max_nodes: int, skip: int
) -> None:
    recorder = Recorder(outliers=4, skip_steps=skip, max_nodes=max_nodes)
    opened: list[Any] = []
    recorder.start_sections()
    recorder.enable()
    recorder.mark()
    try:
        for i, operation in enumerate(operations):
            if operation == "call":
                nothing()
            elif operation == "open":
                opened.append(profile_section(f"s{i % 5}"))
                opened[-1].__enter__()
            elif operation == "close" and opened:
                opened.pop(i % len(opened)).__exit__(None, None, None)
            elif operation == "generator":
                next(iter(j for j in range(3)))
            elif operation == "step":
                recorder.step()
            elif operation == "pause":
                recorder.pause_functions()
            elif operation == "resume":
                recorder.resume_functions()
            elif operation == "mark":
                recorder.mark()
        for _ in range(skip + 1):
            recorder.step()
    finally:
        recorder.disable()
        recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    assert not snapshot.notes
    check_sums(snapshot)
    build_report(snapshot).to_text(full=True)
