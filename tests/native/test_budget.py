"""`max_overhead`: hot trivial functions are muted, named, and send events again later."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from fastprof.capture import Recorder, calibrate
from fastprof.capture.convert import take_snapshot
from fastprof.report.notes import make_notes
from fastprof.snapshot import Calibration, Snapshot
from helpers import BACKENDS, FREE_THREADED, wait_for_sleeping_threads
from trees import counts, paths

pytestmark = pytest.mark.skipif("monitoring" not in BACKENDS, reason="needs sys.monitoring")

switches_places_off = pytest.mark.skipif(
    FREE_THREADED, reason="a free-threaded build switches no call sites off"
)


def trivial() -> None:
    pass


def heavy() -> int:
    # No call in here, so muting cannot remove any of it.
    total = 0
    for i in range(20_000):
        total += i
    return total


def hot(n: int) -> None:
    for _ in range(n):
        trivial()


def train(recorder: Recorder, steps: int) -> None:
    for _ in range(steps):
        hot(2000)
        heavy()
        recorder.step()


@contextmanager
def recording(max_overhead: float = 0.0001) -> Iterator[Recorder]:
    """Record the block; the first step begins with it."""
    recorder = Recorder(backend="monitoring", max_overhead=max_overhead)
    # The cost is set, not measured, and high: a function that takes eight times as long is not
    # trivial, and on a busy machine trivial functions take long.
    recorder.set_costs(500.0, 400.0)
    recorder.start_sections()
    recorder.mark()
    recorder.enable()
    yield recorder
    recorder.disable()
    recorder.stop_sections()


def run(max_overhead: float, steps: int = 40) -> Snapshot:
    with recording(max_overhead) as recorder:
        train(recorder, steps)
    return take_snapshot(recorder)


def test_without_a_budget_nothing_is_muted() -> None:
    snapshot = run(0.0)
    assert snapshot.muted == ()
    assert counts(snapshot, "trivial") == (80_000, 0)


def test_a_hot_trivial_function_is_muted_and_named() -> None:
    snapshot = run(0.0001)
    muted = {snapshot.keys[m.key].name: m.calls_before for m in snapshot.muted}
    assert "trivial" in muted
    assert "heavy" not in muted
    assert muted["trivial"] >= 2000
    # Calls before the muting were recorded, later ones not.
    assert muted["trivial"] <= counts(snapshot, "trivial")[0] < 80_000
    assert counts(snapshot, "heavy") == (40, 0)


def test_a_function_that_costs_nothing_is_not_muted_for_what_others_cost() -> None:
    def seldom() -> None:
        pass

    def once_a_step() -> None:
        pass

    def dear() -> None:
        for _ in range(3000):
            pass

    with recording() as recorder:  # dear() is not trivial: the budget cannot be kept
        seldom()
        for step in range(40):
            for _ in range(150):
                dear()
            once_a_step()
            if step % 13 == 12:
                seldom()
            recorder.step()
    snapshot = take_snapshot(recorder)
    muted = {snapshot.keys[m.key].name for m in snapshot.muted}
    assert not muted & {"seldom", "once_a_step"}


def test_the_last_return_of_a_muted_c_function_is_no_stray_one() -> None:
    def hot_c() -> None:
        for _ in range(2000):
            abs(-1)

    with recording() as recorder:
        for _ in range(40):
            hot_c()
            recorder.step()
        for _ in range(3):
            recorder.pause_functions(unhook=True)
            recorder.rehook()
            recorder.resume_functions()
            hot_c()
    snapshot = take_snapshot(recorder)
    assert ABS in {snapshot.keys[m.key].name for m in snapshot.muted}
    assert "unmatched" not in snapshot.counters


def test_a_function_that_is_called_no_more_is_not_muted() -> None:
    def imported() -> None:
        pass

    with recording() as recorder:
        for _ in range(5000):
            imported()
        train(recorder, 40)
    snapshot = take_snapshot(recorder)
    muted = {snapshot.keys[m.key].name for m in snapshot.muted}
    assert "trivial" in muted
    assert "imported" not in muted


def test_a_muted_function_is_recorded_again_by_the_next_recording() -> None:
    assert run(0.0001).muted
    assert counts(run(0.0), "trivial") == (80_000, 0)


def ancestors(snapshot: Snapshot, name: str) -> Counter[tuple[str, ...]]:
    """Return the calls by the names above `name`."""
    found: Counter[tuple[str, ...]] = Counter()
    for (path, kind), n in paths(snapshot).items():
        if kind == "calls" and path[-1] == name:
            found[path[:-1]] += n
    return found


def test_a_function_that_is_open_is_not_muted() -> None:
    """One code object is trivial and hot, and also a caller of step(): a decorator's wrapper."""

    def wrapped(function: Callable[..., object], *args: object) -> None:
        function(*args)

    def steps(recorder: Recorder) -> None:
        for _ in range(40):
            for _ in range(2000):
                wrapped(trivial)
            heavy()
            recorder.step()

    with recording() as recorder:
        wrapped(steps, recorder)
        heavy()
    snapshot = take_snapshot(recorder)
    assert "trivial" in {snapshot.keys[m.key].name for m in snapshot.muted}
    assert ancestors(snapshot, "heavy") == {("wrapped", "steps"): 40, (): 1}
    assert "unbalanced" not in snapshot.counters


def test_a_function_in_which_another_thread_stands_is_not_muted() -> None:
    turns: list[queue.SimpleQueue[int]] = [queue.SimpleQueue(), queue.SimpleQueue()]

    def block() -> int:
        turns[1].put(1)
        return turns[0].get()

    def shared(wait: bool) -> int:
        return wait and block()  # one return for both

    def serve() -> None:
        shared(True)
        heavy()

    with recording() as recorder:
        thread = threading.Thread(target=serve)
        thread.start()
        turns[1].get()
        for _ in range(40):
            for _ in range(2000):
                shared(False)
            heavy()
            recorder.step()
        turns[0].put(1)
        thread.join()
    snapshot = take_snapshot(recorder)
    assert [path[-1:] for path in ancestors(snapshot, "heavy") if path] == [("serve",)]
    assert "unbalanced" not in snapshot.counters


def test_a_call_that_began_in_a_pause_may_be_muted_while_it_goes_on() -> None:
    turns: list[queue.SimpleQueue[int]] = [queue.SimpleQueue(), queue.SimpleQueue()]

    def wait() -> int:
        turns[1].put(1)
        return turns[0].get()

    def shared(get: Callable[[], int] | None) -> int:
        return get() if get else 0

    def serve() -> None:
        wait()
        shared(turns[0].get)  # begins in the pause, ends when it is muted
        heavy()

    with recording() as recorder:
        thread = threading.Thread(target=serve)
        thread.start()
        turns[1].get()
        recorder.pause_functions()
        turns[0].put(1)
        wait_for_sleeping_threads()
        recorder.resume_functions()
        for _ in range(40):
            for _ in range(2000):
                shared(None)
            heavy()
            recorder.step()
        turns[0].put(1)
        thread.join()
    snapshot = take_snapshot(recorder)
    assert "shared" in {snapshot.keys[m.key].name for m in snapshot.muted}
    above = [path for path in ancestors(snapshot, "heavy") if path]
    assert [path.count("serve") for path in above] == [1]
    assert "unbalanced" not in snapshot.counters


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_muted_function_is_recorded_in_a_forked_child() -> None:
    with recording() as recorder:
        train(recorder, 40)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                recorder.enable()
                hot(1000)
                recorder.disable()
                snapshot = take_snapshot(recorder)
                os.write(writing, b"%d %d" % (counts(snapshot, "trivial")[0], len(snapshot.muted)))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    assert take_snapshot(recorder).muted
    assert os.read(reading, 100) == b"1000 0"


def test_a_muted_function_that_raises_stays_balanced() -> None:
    def fail(n: int) -> None:
        if n:
            raise KeyError

    def careful(n: int) -> None:
        try:
            fail(n)
        except KeyError:
            trivial()

    recorder = Recorder(backend="monitoring", max_overhead=1e-6)
    recorder.set_costs(500.0, 400.0)
    recorder.start_sections()
    recorder.mark()
    recorder.enable()
    for _ in range(64):
        for i in range(200):
            careful(i % 2)
        heavy()
        recorder.step()
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    assert snapshot.muted
    # An unwinding event cannot be switched off before 3.15; it must not close callers.
    assert counts(snapshot, "heavy") == (64, 0)
    assert "unbalanced" not in snapshot.counters


def contexts(side: int) -> Callable[[], None]:
    """Return a function that calls `side` trivial functions from each of `side` callers."""
    names: dict[str, list[Callable[..., None]]] = {}
    source = "callees = [" + ", ".join(f"lambda: {i}" for i in range(side)) + "]\n"
    for i in range(side):
        source += f"def caller{i}():\n    for callee in callees:\n        callee()\n"
    source += "callers = [" + ", ".join(f"caller{i}" for i in range(side)) + "]\n"
    exec(source, names)

    def call_all() -> None:
        for caller in names["callers"]:
            caller()

    return call_all


def test_a_look_at_many_contexts_is_spread_over_steps() -> None:
    """One full look took 10 to 100 ms of one step, which then seemed slow."""
    with recording() as recorder:
        contexts(100)()
        visits, seen, was = [], 0, 0
        for _ in range(1200):
            hot(200)
            began = time.perf_counter_ns()
            recorder.step()
            visits.append((recorder.budget_visits - seen, began - was))
            seen, was = recorder.budget_visits, began
    snapshot = take_snapshot(recorder)
    # More in longer steps: at most one per 10 us of the step.
    assert all(n <= 256 + (ns + 10_000_000) / 10_000 for n, ns in visits)
    assert sum(n for n, _ in visits) > 10_000  # each context was looked at
    assert "trivial" in {snapshot.keys[m.key].name for m in snapshot.muted}
    assert counts(snapshot, "trivial")[0] < 240_000
    assert "unbalanced" not in snapshot.counters


ABS = "<built-in method builtins.abs>"


def call(function: Callable[[int], object]) -> object:
    return function(1)


def over_budget(recorder: Recorder, steps: int) -> None:
    recorder.set_costs(500.0, 400.0)
    recorder.start_sections()
    recorder.mark()
    recorder.enable()
    for _ in range(steps):
        for _ in range(500):
            call(work)
        recorder.step()


def work(n: int) -> int:
    # Takes too long to be muted.
    for i in range(1500):
        n += i
    return n


@switches_places_off
def test_places_that_call_python_functions_are_switched_off_first() -> None:
    recorder = Recorder(backend="monitoring", max_overhead=0.0001)
    over_budget(recorder, 40)
    call(abs)  # from a place that has called a Python function
    abs(-1)
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    assert counts(snapshot, "work") == (20_000, 0)
    assert "unbalanced" not in snapshot.counters
    # `function(1)`, `call(work)`, and perhaps more in this file's code.
    assert snapshot.counters["call_sites_off"] >= 2
    assert counts(snapshot, ABS) == (1, 0)
    assert any("call Python functions" in note for note in make_notes(snapshot))


@switches_places_off
def test_the_cost_of_a_call_is_less_after_places_were_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Both snapshots use the first measurement, so that only the places differ.
    monkeypatch.setattr(calibrate, "_LATER_S", float("inf"))

    def calibrated(max_overhead: float) -> Calibration:
        recorder = Recorder(backend="monitoring", max_overhead=max_overhead)
        over_budget(recorder, 40)
        recorder.disable()
        recorder.stop_sections()
        cost = take_snapshot(recorder).calibration
        assert cost is not None
        return cost

    before, after = calibrated(0.0), calibrated(0.0001)
    assert after.python.inside_ns == before.python.inside_ns
    if before.implicit.outside_ns < before.python.outside_ns:
        assert before.implicit.outside_ns <= after.python.outside_ns < before.python.outside_ns
    else:  # in a sanitizer's build, where most of the cost is the sanitizer's
        assert after.python == before.python


@switches_places_off
def test_places_are_listened_to_again_by_the_next_recording() -> None:
    for unhook in (False, True):
        recorder = Recorder(backend="monitoring", max_overhead=0.0001)
        over_budget(recorder, 40)
        if unhook:
            recorder.pause_functions(unhook=True)
            recorder.rehook()
            recorder.resume_functions()
            for _ in range(500):
                call(work)
        recorder.disable()
        recorder.stop_sections()
        assert take_snapshot(recorder).counters["call_sites_off"]
        later = Recorder(backend="monitoring")
        later.enable()
        call(abs)
        later.disable()
        assert counts(take_snapshot(later), ABS) == (1, 0)


@switches_places_off
def test_a_place_that_is_switched_off_again_is_one_place() -> None:
    def sites_off(unhooked: int) -> int:
        recorder = Recorder(backend="monitoring", max_overhead=0.0001)
        over_budget(recorder, 40)
        call(work)
        for _ in range(unhooked):
            recorder.pause_functions(unhook=True)
            recorder.rehook()
            recorder.resume_functions()
            call(work)
        recorder.disable()
        recorder.stop_sections()
        return take_snapshot(recorder).counters["call_sites_off"]

    assert sites_off(40) <= sites_off(0) + 5  # sites of the loop itself


@switches_places_off
def test_what_another_tool_has_switched_off_stays_off_when_the_hook_was_out() -> None:
    def other() -> None:
        pass

    seen = []

    def on_start(code: object, offset: int) -> object:
        seen.append(code)
        return monitoring.DISABLE

    monitoring = sys.monitoring
    monitoring.use_tool_id(1, "another")
    monitoring.register_callback(1, monitoring.events.PY_START, on_start)
    monitoring.set_events(1, monitoring.events.PY_START)
    recorder = Recorder(backend="monitoring", max_overhead=0.0001)
    over_budget(recorder, 40)
    other()
    for _ in range(5):
        recorder.pause_functions(unhook=True)
        recorder.rehook()
        recorder.resume_functions()
        other()
    monitoring.set_events(1, 0)
    monitoring.free_tool_id(1)
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    assert snapshot.counters["call_sites_off"]
    assert counts(snapshot, "other") == (6, 0)
    assert seen.count(other.__code__) == 1


@switches_places_off
def test_looking_for_an_open_c_call_is_bounded() -> None:
    """A place whose caller has such a call is checked again at each call."""

    def deep(depth: int, calls: int) -> None:
        if depth == 200:
            sorted([1], key=lambda _: deep(depth - 1, calls) or 1)
        elif depth:
            deep(depth - 1, calls)
        for _ in range(calls if depth == 0 else 0):
            trivial()

    recorder = Recorder(backend="monitoring", max_overhead=0.0001)
    over_budget(recorder, 40)
    before = recorder.budget_visits
    deep(200, 10_000)
    visits = recorder.budget_visits - before
    recorder.disable()
    recorder.stop_sections()
    assert take_snapshot(recorder).counters["call_sites_off"]
    assert 200 <= visits < 40_000


def test_a_place_whose_c_function_goes_on_is_not_switched_off() -> None:
    """Otherwise the end of that call would be switched off, too."""
    turns: list[queue.SimpleQueue[int]] = [queue.SimpleQueue(), queue.SimpleQueue()]

    def serve() -> None:
        turns[1].put(1)
        call(turns[0].__getattribute__("get"))
        heavy()

    # With a single tool the end still comes.
    monitoring = sys.monitoring
    monitoring.use_tool_id(1, "another")
    monitoring.register_callback(1, monitoring.events.CALL, lambda *_: None)
    monitoring.set_events(1, monitoring.events.CALL)
    recorder = Recorder(backend="monitoring", max_overhead=0.0001)
    recorder.enable()
    thread = threading.Thread(target=serve)
    thread.start()
    turns[1].get()
    wait_for_sleeping_threads()
    over_budget(recorder, 40)
    turns[0].put(1)
    thread.join()
    monitoring.set_events(1, 0)
    monitoring.free_tool_id(1)
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    assert [path[-1:] for path in ancestors(snapshot, "heavy")] == [("serve",)]
    above = ancestors(snapshot, "<method 'get' of '_queue.SimpleQueue' objects>")
    assert [path[-2:] for path in above if path] == [("serve", "call")]
    assert "unbalanced" not in snapshot.counters


def muted_names(recorder: Recorder, run: Callable[[], object]) -> set[str]:
    recorder.start_sections()
    recorder.mark()
    recorder.enable()
    for _ in range(64):
        run()
        heavy()
        recorder.step()
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    return {snapshot.keys[m.key].qualname for m in snapshot.muted}


@pytest.mark.parametrize(("cost", "muted"), [(1000.0, {"list"}), (0.001, set())])
def test_a_constructor_is_charged_what_constructors_cost(cost: float, muted: set[str]) -> None:
    def run() -> None:
        for _ in range(2000):
            _ = list()  # noqa: C408

    recorder = Recorder(backend="monitoring", max_overhead=0.01)
    recorder.set_costs(1.0, 0.001, 1.0, cost)
    assert muted_names(recorder, run) == muted


@switches_places_off
@pytest.mark.parametrize(("cost", "muted"), [(500.0, True), (0.001, False)])
def test_without_call_sites_a_function_costs_what_an_implicit_one_does(
    cost: float, muted: bool
) -> None:
    recorder = Recorder(backend="monitoring", max_overhead=0.001)
    recorder.set_costs(500.0, 0.001, cost, 0.001)
    # Functions called once per step may be muted, too, depending on the length of steps.
    assert ("trivial" in muted_names(recorder, lambda: hot(2000))) == muted
    assert recorder.export()["counters"]["call_sites_off"] > 0
