"""Profiler: a few steps without the function hook, started by the profiler itself."""

from __future__ import annotations

import itertools
import queue
import random
import sys
import threading

import fastprof
import pytest
from fastprof.capture import convert
from fastprof.capture.calibrate import calibration
from fastprof.report.in_run import LEAST_BLOCKS
from fastprof.session import function_windows as unprofiled
from fastprof.session.function_windows import BLOCK, FunctionWindows
from fastprof.session.overhead_budget import Budget
from fastprof.snapshot.run_phases import RUN_PHASES

UNPROFILED = RUN_PHASES.index("unprofiled")


@pytest.fixture(autouse=True)
def _free(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the limit on a block's cost: these steps are too short to pay for it, so the machine
    would decide how often a block runs."""
    if "paid" not in request.node.name:
        monkeypatch.setattr(unprofiled, "_MAX_COST", 1e9)
    if "short" not in request.node.name:
        monkeypatch.setattr(unprofiled, "_SETTLES_NS", 0)


def work() -> int:
    return sum(range(50))


def run(steps: int = 400, each=lambda prof, i: None, **options) -> fastprof.Profiler:
    prof = fastprof.Profiler(
        **{
            "gpu": False,
            "functions": True,
            "overhead": 0,
            **options,
        }
    )
    with prof:
        for i in range(steps):
            work()
            each(prof, i)
            prof.step()
    return prof


def blocks(prof: fastprof.Profiler) -> list[int]:
    return [block.first for block in prof.snapshot().steps.unprofiled]


def calls(prof: fastprof.Profiler, name: str) -> int:
    return sum(row.calls for row in prof.report().functions if row.name == name)


def test_a_few_per_cent_of_steps_are_apart() -> None:
    prof = run(3000)
    steps, first = prof.report().steps, blocks(prof)
    assert 0.03 < steps.apart / steps.count < 0.05
    assert steps.apart == BLOCK * len(first)
    assert all(b - a >= BLOCK + 60 for a, b in itertools.pairwise(first[7:]))
    assert calls(prof, "work") == steps.measured == 3000 - 3 - steps.apart
    assert prof.steps == steps.count == 3000


def test_a_hundred_and_twenty_steps_tell_what_the_hook_costs() -> None:
    prof = run(120)
    assert len(blocks(prof)) >= LEAST_BLOCKS
    # No two blocks share their neighbouring measured steps.
    assert all(b - a >= BLOCK + 9 for a, b in itertools.pairwise(blocks(prof)))


@pytest.mark.skipif(sys.platform != "linux", reason="CPU times of threads are Linux's")
def test_the_cpu_time_of_all_threads_is_known_with_the_hook_and_without() -> None:
    """A thread beside the training waits with it for the interpreter: what the hook costs there,
    the step waits for."""
    handed = queue.Queue(maxsize=1)

    def drain() -> None:
        while handed.get():
            work()

    class Odd(threading.Thread):
        @property
        def native_id(self) -> int:
            raise LookupError("not a number of a thread")

    odd = Odd(target=threading.Event().wait, daemon=True)
    odd.start()
    thread = threading.Thread(target=drain, daemon=True)
    thread.start()
    prof = run(200, each=lambda prof, i: handed.put(1))
    handed.put(0)
    thread.join()
    steps = prof.snapshot().steps
    assert steps.unprofiled_cpu is not None
    assert [row.first for row in steps.unprofiled_cpu] == [row.first for row in steps.unprofiled]
    for row in steps.unprofiled_cpu:
        assert min(row.plain_ns, row.hooked_ns, row.plain_others_ns, row.hooked_others_ns) > 0


def test_a_short_run_has_no_unprofiled_steps() -> None:
    assert blocks(run(28)) == []


def test_they_begin_at_any_step() -> None:
    first = blocks(run(1000))
    gaps = [b - a for a, b in itertools.pairwise(first)]
    assert len(set(gaps)) > len(gaps) // 2
    assert len({f % 10 for f in first}) > 3


def test_the_program_s_random_numbers_are_its_own() -> None:
    random.seed(5)
    run(500)
    after = random.random()
    assert random.Random(5).random() == after


@pytest.mark.parametrize(
    "options",
    [
        {"functions": False},
        {"trace": True},
        {"schedule": fastprof.Schedule(wait=1, active=20, repeat=0)},
    ],
)
def test_not_where_functions_are_off_scheduled_or_traced(options) -> None:
    assert run(300, **options).report().steps.apart == 0


def test_none_with_the_profile_of_cprofile_s_face() -> None:
    with fastprof.Profile() as prof:
        for _ in range(300):
            work()
    assert prof.report().steps.count == 0
    assert sum(row.calls for row in prof.report().functions if row.name == "work") == 300


def test_validation_within_a_block_is_recorded_whole() -> None:
    plain = run()
    at = blocks(plain)[0] + 1
    seen = []

    def each(prof: fastprof.Profiler, i: int) -> None:
        if i == at:
            prof.enter_phase("validation")
            work()
            seen.append(prof._run.recorder.active)
            prof.leave_phase("validation")

    prof = run(each=each)
    # The block is dropped and its steps count as apart; another block is drawn after it.
    assert at - 1 not in blocks(prof)
    report = prof.report()
    assert (
        sum(f.calls for f in prof.report().in_phase("validation").functions if f.name == "work")
        == 1
    )
    assert calls(prof, "work") == report.steps.measured


def test_a_run_that_ends_in_a_block_loses_nothing() -> None:
    at = blocks(run())[0]
    prof = run(at + 1)
    assert prof.report().steps.measured == at - 3
    assert calls(prof, "work") == at - 3


def test_a_profiler_that_comes_in_a_block_keeps_the_hook() -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("sys.monitoring has room for both")
    at = blocks(run())[0]

    def each(prof: fastprof.Profiler, i: int) -> None:
        if i == at + 1:
            sys.setprofile(lambda *args: None)

    try:
        prof = run(each=each)
        assert sys.getprofile() is not None
    finally:
        sys.setprofile(None)
    assert any("ended early" in note for note in prof.report().notes)
    assert prof.steps == 400


def test_an_operator_window_is_not_in_a_block() -> None:
    pytest.importorskip("torch")
    at = blocks(run())[0]
    options = fastprof.OperatorProfile(
        enable_cpu_profiling=True,
        schedule=fastprof.Schedule(skip_first=at, wait=0, warmup=1, active=2, repeat=1),
    )
    prof = run(operators=options)
    assert at not in blocks(prof)
    assert blocks(prof), "there are others"


def test_an_operator_window_keeps_the_hook_that_it_has_taken() -> None:
    pytest.importorskip("torch")
    at = blocks(run(recorder={"backend": "setprofile"}))[0]
    options = fastprof.OperatorProfile(
        enable_cpu_profiling=True,
        with_stack=True,
        schedule=fastprof.Schedule(skip_first=at - 2, wait=0, warmup=1, active=6, repeat=1),
    )
    prof = run(operators=options, recorder={"backend": "setprofile"})
    # Seven steps; the first one planned without the hook counts as apart.
    assert calls(prof, "work") <= prof.report().steps.measured - 6
    assert blocks(prof), "there are others"


def test_what_blocks_took_is_stated_and_is_no_part_of_a_measured_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The second report may measure the hook again, and find another cost.
    cost = calibration("auto")
    monkeypatch.setattr(convert, "calibration", lambda backend: cost)
    prof = run(1000)
    before = prof.report()
    prof._run.parts.of(FunctionWindows).cost_ns += 10**9
    after = prof.report()
    assert after.overhead.estimated_ms == pytest.approx(before.overhead.estimated_ms + 1000.0)
    steps_ms = before.shown_steps.mean_ms * before.steps.count
    of_steps = (before.overhead.share * steps_ms + 1000) / (steps_ms + 1000)
    assert after.overhead.share == pytest.approx(of_steps, rel=0.1)
    if after.steps.unprofiled is not None and before.steps.unprofiled is not None:
        assert after.steps.unprofiled.own_ms == pytest.approx(before.steps.unprofiled.own_ms)


def made(recorder, hindered=lambda first, last: False, budget=None) -> FunctionWindows:
    return FunctionWindows(
        recorder, budget, lambda: True, hindered, 3, print, recorder.switched.append
    )


def test_without_functions_no_step_is_asked_for() -> None:
    windows = FunctionWindows(
        Recorder(), Budget(0.01, Recorder(), lambda: 0), lambda: False, lambda first, last: False,
        0, print, lambda on: None,
    )  # fmt: skip
    windows.begin()
    assert windows.next_step(0) == sys.maxsize


class Recorder:
    """Begins every requested block."""

    planned = 0
    ended = 0
    length = BLOCK
    blocks: list[tuple[int, int]] = []

    def __init__(self) -> None:
        self.switched: list[bool] = []

    def last_blocks(self, count: int, /) -> list[tuple[int, int]]:
        return self.blocks

    def unprofiled_length(self, settles_ns: int, /) -> int:
        return self.length

    def plan_unprofiled(self, step: int, /) -> None:
        self.planned = step

    def begin_unprofiled(self) -> bool:
        return True

    def end_unprofiled(self, valid: bool, /) -> None:
        self.ended += 1

    def rehook(self) -> None:
        pass

    def resume_functions(self) -> None:
        pass


def test_a_block_that_cannot_be_costs_no_step() -> None:
    """The recorder removes the planned first step of a block from the measured ones."""
    recorder = Recorder()
    asked = []

    def hindered(first: int, last: int) -> bool:
        asked.append((first, last))
        return len(asked) <= 3

    taken = made(recorder, hindered)
    taken.begin()
    plans = []
    for count in range(1000):
        if count == recorder.planned:
            break
        plans += [recorder.planned] if recorder.planned not in plans else []
        if count >= taken.next_step(count):
            taken.at_step(count)
    assert [first for first, _ in asked[:3]] == plans[:3]
    assert recorder.ended == 0
    taken.at_step(recorder.planned)
    taken.at_step(taken.next_step(0))  # the first step that counts begins
    assert taken.next_step(0) == recorder.planned + BLOCK


def test_p9_a_block_is_tried_again_where_the_program_is_at_its_recursion_limit() -> None:
    recorder = Recorder()
    deep = [True]

    def hindered(first: int, last: int) -> bool:
        if deep and deep.pop():
            raise RecursionError("maximum recursion depth exceeded")
        return False

    lost: list[str] = []
    taken = FunctionWindows(
        recorder, None, lambda: True, hindered, 3, lost.append, recorder.switched.append
    )
    taken.begin()
    first = recorder.planned
    taken.at_step(first - 1)  # is too deep
    taken.at_step(first)
    taken.at_step(first + BLOCK)
    assert (lost, recorder.ended) == ([], 1)


def test_blocks_of_short_steps_are_longer_and_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprofiled, "_SETTLES_NS", 10**12)
    prof = run(6000)
    steps = prof.report().steps
    # 24 are left out and four measured; the run may end in another block.
    assert steps.apart // len(blocks(prof)) == 28
    assert 0.06 < steps.apart / steps.count < 0.12
    assert calls(prof, "work") == steps.measured


def test_a_window_may_not_be_in_any_step_of_a_longer_block() -> None:
    recorder = Recorder()
    recorder.length = 12
    asked: list[tuple[int, int]] = []

    def hindered(first: int, last: int) -> bool:
        asked.append((first, last))
        return False

    taken = made(recorder, hindered)
    taken.begin()
    first = recorder.planned
    taken.at_step(first - 1)
    taken.at_step(first)
    assert asked == [(first, first + 12)] * 2
    assert taken.next_step(0) == first + 12 - 4  # where the steps that count begin
    taken.at_step(first + 12 - 4)
    assert taken.next_step(0) == first + 12
    taken.at_step(first + 12)
    assert 2 * 10 <= recorder.planned - (first + 12) < 2 * 18


def test_a_block_is_paid_for_by_the_steps_before_it() -> None:
    recorder = Recorder()
    taken = made(recorder)
    taken.begin()
    first = recorder.planned
    taken.at_step(first)
    taken.cost_ns += 10**12  # a thousand seconds
    taken.at_step(first + BLOCK)
    assert recorder.planned > 10**6
