"""Steps without the function hook in the middle of a run: the tree lacks only these steps."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from fastprof._core import Recorder, profile_section
from fastprof.capture.convert import take_snapshot
from fastprof.errors import BusyError
from fastprof.snapshot import Snapshot
from fastprof.snapshot.run_phases import RUN_PHASES
from helpers import need_running_threads

UNPROFILED = RUN_PHASES.index("unprofiled")
SKIP, STEPS, EVERY, BLOCK = 2, 58, 12, 3


def leaf() -> int:
    return len("x")


def ahead() -> None:
    for _ in range(5):
        leaf()


def numbers():
    while True:
        yield leaf()


def calls(snapshot: Snapshot, name: str, phase: int) -> int:
    return sum(
        tree.nodes.calls[i] + tree.nodes.resumes[i]
        for tree in snapshot.threads
        for i, key in enumerate(tree.nodes.key)
        if snapshot.keys[key].name == name and tree.nodes.phase[i] == phase
    )


def paths(snapshot: Snapshot, phase: int) -> set[tuple[str, ...]]:
    """Return the entered paths, by name."""
    found = set()
    for tree in snapshot.threads:
        nodes, of = tree.nodes, [()] * len(tree.nodes)
        for i in range(1, len(nodes)):
            of[i] = (*of[nodes.parent[i]], snapshot.keys[nodes.key[i]].name)
            if nodes.phase[i] == phase and (nodes.calls[i] or nodes.resumes[i]):
                found.add(of[i])
    return found


def loop(recorder: Recorder, batches, blocks: bool, interrupt: int = -1) -> None:
    recorder.mark()
    recorder.set_phase(0)
    if blocks:
        recorder.plan_unprofiled(SKIP + EVERY)
    end = -1
    for _ in range(STEPS):
        next(batches)
        with profile_section("forward"):
            ahead()
        count = recorder.step()
        if count == end:
            recorder.end_unprofiled(count != interrupt)
            recorder.plan_unprofiled(count + EVERY)
            end = -1
        elif recorder.begin_unprofiled():
            end = count + BLOCK


def run(backend: str, blocks: bool = True, interrupt: int = -1) -> Snapshot:
    recorder = Recorder(backend=backend, skip_steps=SKIP, outliers=3)
    recorder.start_sections()
    recorder.enable()
    batches = numbers()
    loop(recorder, batches, blocks, interrupt)
    recorder.disable()
    recorder.stop_sections()
    return take_snapshot(recorder)


def test_a_block_is_apart_and_nothing_moves(backend) -> None:
    with_blocks, without = run(backend), run(backend, blocks=False)
    steps = with_blocks.steps
    assert (steps.count, steps.skipped, steps.apart) == (STEPS, SKIP, 3 * BLOCK)
    assert steps.measured == STEPS - SKIP - 3 * BLOCK == len(steps.series)
    for name, each in (("ahead", 1), ("leaf", 6), ("numbers", 1)):
        assert calls(without, name, 0) == (STEPS - SKIP) * each
        assert calls(with_blocks, name, 0) == steps.measured * each
        assert calls(with_blocks, name, UNPROFILED) == 0
    planned = {p for p in paths(with_blocks, 0) if "plan_unprofiled" in p[-1]}
    assert paths(with_blocks, 0) - planned == paths(without, 0)
    assert {p for p in paths(with_blocks, UNPROFILED) if "forward" in p}, "the section is there"


def test_steps_keep_their_numbers(backend) -> None:
    steps = run(backend).steps
    first = [SKIP + EVERY + i * (EVERY + BLOCK) for i in range(3)]
    apart = {n for at in first for n in range(at, at + BLOCK)}
    assert [b.first for b in steps.unprofiled] == first
    assert list(steps.series.number) == [n for n in range(SKIP, STEPS) if n not in apart]
    assert steps.series.first == SKIP
    assert steps.series.row_of(first[0]) == -1
    assert steps.series.row_of(first[0] + BLOCK) == first[0] - SKIP


def test_a_block_holds_what_sections_took_on_both_sides(backend) -> None:
    snapshot = run(backend)
    for block in snapshot.steps.unprofiled:
        ((key, plain_ns, hooked_ns),) = block.sections
        assert snapshot.keys[key].name == "forward"
        assert 0 < plain_ns <= block.plain_ns
        assert 0 < hooked_ns <= block.hooked_ns


def test_what_is_no_step_like_the_others_is_forgotten(backend) -> None:
    steps = run(backend, interrupt=SKIP + EVERY + BLOCK).steps
    assert [b.first for b in steps.unprofiled] == [29, 44]
    assert steps.apart == 3 * BLOCK, "it was apart all the same"


def test_functions_are_watched_in_every_measured_step(backend) -> None:
    recorder = Recorder(backend=backend, skip_steps=SKIP)
    recorder.start_sections()
    recorder.enable()
    loop(recorder, numbers(), blocks=True)
    spent = recorder.export()["steps"]["spent"]
    recorder.disable()
    recorder.stop_sections()
    assert spent["function_steps"] == STEPS - SKIP - 3 * BLOCK


def test_a_block_has_the_time_of_its_phase(backend) -> None:
    phases = {p.name: p for p in run(backend).phases}
    assert phases["unprofiled"].entries == 3
    assert phases["steps"].entries == 1
    assert phases["unprofiled"].wall_ns > 0


def test_other_threads_are_without_the_hook_too(backend) -> None:
    need_running_threads(backend)
    recorder = Recorder(backend=backend, skip_steps=0)
    go, done, over = threading.Event(), threading.Event(), threading.Event()

    def helper() -> None:
        while not over.is_set():
            go.wait()
            go.clear()
            leaf()
            done.set()

    def ask() -> None:
        done.clear()
        go.set()
        done.wait()

    recorder.start_sections()
    recorder.enable()
    thread = threading.Thread(target=helper)
    thread.start()
    recorder.mark()
    recorder.set_phase(0)
    recorder.plan_unprofiled(2)
    for _ in range(2):
        ask()
        recorder.step()
    assert recorder.begin_unprofiled()
    for _ in range(3):
        ask()
        recorder.step()
    recorder.end_unprofiled(True)
    for _ in range(2):
        ask()
        recorder.step()
    over.set()
    go.set()
    thread.join()
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    assert calls(snapshot, "leaf", 0) == 5
    assert calls(snapshot, "leaf", UNPROFILED) == 0


@pytest.mark.parametrize("when", ["warm-up", "off", "elsewhere", "never"])
def test_there_is_no_block_where_there_are_no_measured_steps(when: str) -> None:
    recorder = Recorder(skip_steps=3)
    recorder.start_sections()
    if when != "off":
        recorder.enable()
    recorder.mark()
    recorder.set_phase(0)
    at = {"warm-up": 2, "never": 0}.get(when, 5)
    recorder.plan_unprofiled(at)
    for count in range(1, 8):
        if when == "elsewhere" and count == 4:
            recorder.set_phase(RUN_PHASES.index("validation"))
        recorder.step()
        assert not recorder.begin_unprofiled()
        recorder.end_unprofiled(False)  # harmless
    recorder.disable()
    recorder.stop_sections()
    assert take_snapshot(recorder).steps.unprofiled == ()


def test_what_follows_a_loop_that_ends_in_a_block_is_no_step() -> None:
    recorder = Recorder(skip_steps=0)
    recorder.set_phase(0)
    recorder.start_sections()
    recorder.enable()
    recorder.mark()
    recorder.plan_unprofiled(3)
    for _ in range(3):
        recorder.step()
    assert recorder.begin_unprofiled()
    time.sleep(0.3)
    recorder.end_loop()
    recorder.disable()
    recorder.stop_sections()
    phases = {p.name: p for p in take_snapshot(recorder).phases}
    assert phases["outside"].wall_ns >= 300_000_000 > phases["unprofiled"].wall_ns


def test_steps_stay_plain_where_another_profiler_has_taken_the_hook() -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("sys.monitoring has room for both")
    recorder = Recorder(skip_steps=0)
    recorder.set_phase(0)
    recorder.start_sections()
    recorder.enable()
    recorder.mark()
    recorder.plan_unprofiled(3)
    for _ in range(3):
        recorder.step()
    assert recorder.begin_unprofiled()
    for _ in range(4):
        recorder.step()
    sys.setprofile(lambda *args: None)
    try:
        with pytest.raises(BusyError):
            recorder.rehook()
        for _ in range(10):
            recorder.step()
    finally:
        sys.setprofile(None)
    recorder.disable()
    recorder.stop_sections()
    plain = take_snapshot(recorder).plain_steps
    assert plain is not None
    assert plain.measured == 4 - 1 + 10


def test_a_short_time_after_many_plain_steps_stays_in_the_last_step() -> None:
    recorder = Recorder(skip_steps=0)
    recorder.set_phase(0)
    recorder.start_sections()
    recorder.enable()
    recorder.mark()
    recorder.plan_unprofiled(3)
    for _ in range(3):
        recorder.step()
    assert recorder.begin_unprofiled()
    recorder.step()  # settles
    time.sleep(1.2)
    recorder.step()
    began = time.perf_counter()
    time.sleep(0.015)
    recorder.end_loop()
    took = time.perf_counter() - began
    recorder.disable()
    recorder.stop_sections()
    phases = {p.name: p for p in take_snapshot(recorder).phases}
    assert "outside" not in phases or took > 1.2 / 20


def test_the_warm_up_stays_what_it_was_when_a_step_begins_anew() -> None:
    recorder = Recorder(skip_steps=0)
    recorder.start_sections()
    recorder.mark()
    recorder.set_phase(RUN_PHASES.index("setup"))
    recorder.step()  # holds set-up, so it is warm-up
    recorder.step()
    recorder.mark()
    recorder.step()
    recorder.stop_sections()
    steps = take_snapshot(recorder).steps
    assert (steps.count, steps.skipped) == (3, 1)


def inner(name: str) -> None:
    with profile_section(name):
        leaf()


def first(name: str) -> None:
    inner(name)


def second(name: str) -> None:
    inner(name)


def deep(depth: int, then) -> None:
    """Call ``then`` below more functions than a section reads in a plain step."""
    if depth:
        deep(depth - 1, then)
    else:
        then()


def test_sections_of_plain_steps_have_the_place_where_they_open(backend) -> None:
    recorder = Recorder(backend=backend, skip_steps=0)

    def steps() -> None:
        recorder.mark()
        recorder.set_phase(0)
        recorder.plan_unprofiled(4)
        for i in range(12):
            with profile_section("whole"):
                first("a")
                second("a")
            deep(12, lambda: second("b"))
            with profile_section("end"):
                (first, second)[i % 2]("c")
            if recorder.step() == 4:
                assert recorder.begin_unprofiled()
        recorder.end_unprofiled(True)

    recorder.start_sections()
    recorder.enable()
    deep(20, steps)
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    sections = {"a", "b", "c", "whole", "end"}
    hooked, plain = (
        {path for path in paths(snapshot, phase) if path[-1] in sections}
        for phase in (RUN_PHASES.index("steps"), UNPROFILED)
    )
    below = ("deep",) * 21 + ("steps",)
    assert hooked == {
        (*below, "whole"),
        (*below, "whole", "first", "inner", "a"),
        (*below, "whole", "second", "inner", "a"),
        (*below, *("deep",) * 13, "<lambda>", "second", "inner", "b"),
        (*below, "end"),
        (*below, "end", "first", "inner", "c"),
        (*below, "end", "second", "inner", "c"),
    }
    assert plain == hooked
