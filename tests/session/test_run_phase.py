"""Profiler.enter_phase: the order of phases, and their interruptions."""

from __future__ import annotations

import threading
import time

import fastprof
import pytest
from fastprof.capture.options import RecorderOptions
from fastprof.findings.checklist import checklist_lines
from fastprof.report.figures import percent_at_most
from fastprof.session.own_costs import OwnCosts
from fastprof.session.own_time import OwnTime
from fastprof.session.run_phase import RunPhase
from fastprof.snapshot import Snapshot
from helpers import check_patiently


def names(prof: fastprof.Profiler) -> dict[str, int]:
    """Return the entries of each phase.

    Call it during the run if the steps are short: the end of the run becomes a phase (outside) if
    the machine delays it by more than 10 ms.
    """
    return {p.name: p.entries for p in prof.snapshot().phases if p.entries}


def test_a_run_begins_with_warm_up() -> None:
    with fastprof.Profiler(functions=False, skip_first=1) as prof:
        prof.step()
        prof.step()
        assert names(prof) == {"warmup": 1, "steps": 1}
        assert prof.report().phase == "steps"


def test_without_warm_up_it_begins_with_measured_steps() -> None:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        prof.step()
        assert prof.report().steps.measured == 1
        assert prof.report().phase == "all", "nobody told of phases"


def test_set_up_lengthens_no_step() -> None:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        prof.enter_phase("setup")
        time.sleep(0.2)
        prof.leave_phase("setup")
        prof.step()
    report = prof.report()
    assert report.steps.measured == 1
    assert report.steps.max_ms < 200
    assert next(p for p in report.phases if p.name == "setup").wall_ms >= 200


def test_a_step_that_ends_in_set_up_is_warm_up() -> None:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        prof.enter_phase("setup")
        prof.step()
        prof.step()
    assert (prof.report().steps.count, prof.report().steps.measured) == (2, 1)


def test_own_time_belongs_to_the_phase_in_which_it_was_spent() -> None:
    own = OwnTime(whole_ns=0)
    recorder = RecorderOptions().create(skip_steps=0)
    phase = RunPhase(recorder, own)
    phase.begin()
    for name, ns in (("setup", 1), ("validation", 20), ("checkpoint", 300), ("outside", 4000)):
        phase.enter(name)
        own.ns += ns
        phase.leave(name)
        own.ns += 50_000  # in steps
    phase.enter("validation")
    own.ns += 600_000
    own.whole_ns += 600_000
    meta = phase.add_to(Snapshot({}, 1)).meta
    assert meta["own_elsewhere_ns"] == 2 * 4321 + 600_000
    assert meta["own_evaluating_ns"] == 2 * 320 + 600_000
    assert phase.add_to(Snapshot({}, 1)).meta == meta


def test_the_cost_of_functions_in_validation_is_a_part_of_the_loop_s() -> None:
    def call() -> None:
        pass

    shares = []
    for calls in (0, 100_000):
        with fastprof.Profiler(overhead=0, skip_first=0, gpu=False) as prof:
            for _ in range(3):
                time.sleep(0.01)
                prof.step()
            prof.enter_phase("validation")
            for _ in range(calls):
                call()
            time.sleep(0.02)
            prof.leave_phase("validation")
        shares.append(prof.report().overhead.share)
    assert None not in shares
    assert shares[1] > shares[0] + 0.02


def test_sections_in_validation_cost_nothing_of_a_step() -> None:
    with fastprof.Profiler(functions=False, skip_first=0, gpu=False) as prof:
        prof._run.parts.of(OwnCosts)._section_costs = (1000.0, 0.0, 0.0)
        for phase in ("validation", "checkpoint", "outside"):
            prof.step()
            prof.enter_phase(phase)
            for _ in range(100):
                with fastprof.profile_section("part"):
                    pass
            prof.leave_phase(phase)
        meta = prof.snapshot().meta
    assert 300_000 <= meta["own_elsewhere_ns"] < 100 * 300_000
    assert 200_000 <= meta["own_evaluating_ns"] <= meta["own_elsewhere_ns"] - 100_000


def test_a_checkpoint_of_several_files_is_one_and_so_is_a_validation_within_one() -> None:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        phase = prof._run.parts.of(RunPhase)
        for _ in range(2):
            prof.step()
            for _ in range(3):
                prof.enter_phase("checkpoint")
                prof.leave_phase("checkpoint")
            prof.enter_phase("validation")
            prof.enter_phase("validation")
            prof.leave_phase("validation")
            prof.leave_phase("validation")
        assert phase.passes == {"validation": 2, "checkpoint": 2}


def test_a_section_does_not_take_the_time_of_compiling() -> None:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        phase = prof._run.parts.of(RunPhase)
        with fastprof.profile_section("forward"), fastprof.profile_section("block"):
            phase.enter_compiling()
            time.sleep(0.5)
            phase.leave_compiling()
        prof.step()
        report = prof.report()
    rows = {row.name: row.total_ms for row in report.sections}
    assert 0.0 <= rows["block"] <= rows["forward"] < 400
    assert report.steps.max_ms < 400


def test_sections_of_other_threads_go_on_while_the_training_thread_compiles() -> None:
    opened, compiled = threading.Event(), threading.Event()

    def prefetch() -> None:
        with fastprof.profile_section("prefetch"):
            opened.set()
            compiled.wait()

    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        thread = threading.Thread(target=prefetch)
        thread.start()
        opened.wait()
        phase = prof._run.parts.of(RunPhase)
        phase.enter_compiling()
        time.sleep(0.3)
        phase.leave_compiling()
        compiled.set()
        thread.join()
        prof.step()
        snapshot = prof.snapshot()
    rows = [row for row in snapshot.sections if snapshot.keys[row.key].name == "prefetch"]
    assert sum(row.sum_ns for row in rows) >= 300 * 10**6


def test_asides_may_be_inside_each_other() -> None:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        prof.enter_phase("setup")
        prof.enter_phase("steps")
        prof.enter_phase("validation")
        prof.enter_phase("checkpoint")
        prof.leave_phase("checkpoint")
        assert names(prof)["validation"] == 1, "it was interrupted, and goes on"
        prof.enter_phase("outside")  # entered late: it begins when the validation ends
        prof.leave_phase("checkpoint")  # is not open
        assert "outside" not in names(prof)
        prof.leave_phase("validation")
        assert names(prof)["outside"] == 1
        prof.leave_phase("outside")
        prof.step()
    assert prof.report().steps.measured == 1


def test_what_began_in_an_aside_ends_with_it() -> None:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        prof.enter_phase("setup")
        prof.enter_phase("steps")
        prof.enter_phase("validation")
        prof.enter_phase("checkpoint")
        prof.leave_phase("validation")
        prof.leave_phase("checkpoint")
        prof.step()
        assert names(prof) == {"setup": 1, "steps": 1, "validation": 1, "checkpoint": 1}


def test_other_threads_do_not_change_the_phase_and_an_unknown_name_is_refused() -> None:
    with fastprof.Profiler(functions=False) as prof:
        thread = threading.Thread(target=prof.enter_phase, args=("validation",))
        thread.start()
        thread.join()
        assert "validation" not in names(prof)
        with pytest.raises(ValueError, match="'epoch', expected one of setup, steps"):
            prof.enter_phase("epoch")
    prof.enter_phase("setup")  # the run is over


def test_a_validation_loader_is_a_phase_and_lengthens_no_step() -> None:
    def slow():
        for _ in range(4):
            time.sleep(0.05)
            yield 1

    with fastprof.Profiler(functions=False, skip_first=1) as prof:
        for step in range(4):
            if step == 2:
                for _ in prof.loader(slow(), "held_out", split="val"):
                    pass
            prof.step()
    report = prof.report()
    assert report.steps.max_ms < 200
    row = next(p for p in report.phases if p.name == "validation")
    assert row.entries == 1
    assert row.wall_ms >= 200
    assert report.in_phase("validation").section("data").count == 4


def test_a_thread_that_reads_batches_ahead_ends_no_validation() -> None:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        prof.enter_phase("setup")
        prof.leave_phase("setup")
        ahead = iter(prof.loader(range(8), "train"))
        for _ in prof.loader([1, 2], "held_out", split="val"):
            thread = threading.Thread(target=next, args=(ahead,))
            thread.start()
            thread.join()
        assert names(prof) == {"setup": 1, "steps": 1, "validation": 1}
        prof.step()
        assert names(prof) == {"setup": 1, "steps": 1, "validation": 1}


def test_a_validation_in_another_thread_leaves_that_of_the_training_thread_alone() -> None:
    def elsewhere() -> None:
        for _ in prof.loader([1, 2], "other", split="val"):
            pass

    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        prof.enter_phase("setup")
        prof.leave_phase("setup")
        for _ in prof.loader([1, 2], "held_out", split="val"):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
        prof.step()
        assert names(prof) == {"setup": 1, "steps": 1, "validation": 1}
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        prof.step()
        assert names(prof) == {"setup": 1, "steps": 1, "validation": 1}


def test_an_iterator_that_is_dropped_late_ends_no_later_validation() -> None:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        batches = iter(prof.loader(range(9), "train"))
        kept = [iter(prof.loader([1, 2], "held_out", split="val"))]
        next(kept[0])
        next(batches)
        prof.step()
        for _ in prof.loader([1, 2], "held_out", split="val"):
            kept.clear()
            assert prof._run._phase._asides, "still in validation"
        assert not prof._run._phase._asides
        prof.step()


def test_what_follows_the_last_step_is_outside(backend: str) -> None:
    def train_one() -> None:
        time.sleep(0.002)

    def sample() -> None:
        with fastprof.profile_section("sampling"):
            time.sleep(0.1)
            train_one()

    with fastprof.Profiler(skip_first=2, recorder={"backend": backend}) as prof:
        for _ in range(30):
            train_one()
            prof.step()
        sample()
    assert names(prof) == {"warmup": 1, "steps": 1, "outside": 1}
    report = prof.report()
    assert report.phase == "steps"
    calls = {row.name: row.calls for row in report.functions}
    assert "sample" not in calls
    assert calls["train_one"] == 28
    assert [row.name for row in report.sections] == []
    assert not any("no step that ended" in note for note in report.notes)
    after = prof.report().in_phase("outside")
    assert {row.name: row.calls for row in after.functions}["train_one"] == 1
    assert [(row.name, row.count) for row in after.sections] == [("sampling", 1)]
    outside = next(p for p in report.phases if p.name == "outside")
    assert outside.wall_ms >= 100


def test_a_short_time_after_the_last_step_is_no_separate_phase() -> None:
    def record(_: int) -> fastprof.Profiler:
        with fastprof.Profiler(functions=False, skip_first=0) as prof:
            for _ in range(20):
                time.sleep(0.002)
                prof.step()
            time.sleep(0.001)
        return prof

    def check(prof: fastprof.Profiler) -> None:
        assert names(prof) == {}

    check_patiently(check, record)


def test_a_section_of_steps_and_of_what_follows_says_so() -> None:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        for _ in range(20):
            with fastprof.profile_section("forward"):
                time.sleep(0.001)
            prof.step()
        for _ in range(10):
            with fastprof.profile_section("forward"):
                time.sleep(0.01)
    report = prof.report()
    assert [(row.name, row.count) for row in report.sections] == [("forward", 30)]
    [said] = [note for note in report.notes if "after the last step" in note]
    assert said == (
        "10 of 30 entries of section forward were after the last step; its count and its "
        "percentiles include them."
    )


def test_the_checklist_is_about_measured_steps_in_every_phase() -> None:
    with fastprof.Profiler(functions=False, skip_first=1) as prof:
        for _ in range(9):
            with fastprof.profile_section("forward"):
                pass
            with fastprof.profile_section("backward"):
                time.sleep(0.002)
            prof.step()
        prof.enter_phase("validation")
        with fastprof.profile_section("eval"):
            time.sleep(0.002)
        prof.leave_phase("validation")
    report = prof.report()
    expected = checklist_lines(report)
    assert any(line.startswith("[yes] Forward and backward take most") for line in expected)
    for phase in ("warmup", "validation", "all"):
        assert checklist_lines(report.in_phase(phase)) == expected


def test_the_cost_in_the_first_line_is_that_of_the_steps() -> None:
    def small() -> None:
        pass

    with fastprof.Profiler(skip_first=2) as prof:
        prof.enter_phase("setup")
        for _ in range(20_000):
            small()
        prof.leave_phase("setup")
        for _ in range(12):
            time.sleep(0.01)
            prof.step()
    report = prof.report()
    overhead = report.overhead
    assert overhead.of_steps
    assert overhead.share is not None
    assert overhead.estimated_ms is not None
    assert 0 < overhead.share < overhead.estimated_ms / report.wall_ms
    headline = " ".join(report.to_text().split("\n\n")[0].split())
    assert f"cost {percent_at_most(overhead.share, overhead.most_share)}" in headline


def test_files_saved_without_a_step_in_between_are_one_checkpoint() -> None:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        for _ in range(3):
            for _ in range(4):
                prof.step()
            for _ in range(5):
                prof.enter_phase("checkpoint")
                prof.leave_phase("checkpoint")
    assert names(prof)["checkpoint"] == 3
