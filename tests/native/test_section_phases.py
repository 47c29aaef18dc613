"""Sections that automatic instrumentation opens: once per phase, open until the next one."""

from __future__ import annotations

import time

import fastprof
import pytest
from fastprof import profile_section

FORWARD, BACKWARD = profile_section("forward"), profile_section("backward")


def counts(prof: fastprof.Profiler) -> dict[str, int]:
    assert prof.snapshot().counters == {}, "nothing was left out of order, or twice"
    return {row.name: row.count for row in prof.report().sections}


@pytest.fixture
def prof():
    with fastprof.Profiler(functions=False, skip_first=0) as profiler:
        yield profiler


@pytest.mark.parametrize("name", ["forward", "forward_pass"])
def test_a_phase_is_not_entered_while_one_of_its_sections_is_open(prof, name) -> None:
    with profile_section(name):
        assert FORWARD.enter_phase() is False
        with profile_section("inner"):
            assert FORWARD.enter_phase() is False
            assert BACKWARD.enter_phase() is True
            BACKWARD.__exit__()
    assert counts(prof) == {name: 1, "inner": 1, "backward": 1}


def test_a_section_without_a_phase_is_not_entered_twice(prof) -> None:
    save = profile_section("checkpoint")
    assert save.enter_phase() is True
    assert save.phase_is_open() is True
    assert save.enter_phase() is False
    assert profile_section("h2d").enter_phase() is True
    profile_section("h2d").__exit__()
    save.__exit__()
    assert save.phase_is_open() is False
    assert counts(prof) == {"checkpoint": 1, "h2d": 1}


def test_without_a_run_nothing_is_entered() -> None:
    assert FORWARD.phase_is_open() is False
    assert FORWARD.enter_phase() is False
    FORWARD.leave_later()
    FORWARD.leave_now()


def test_it_lasts_until_the_next_phase_and_contains_other_sections(prof) -> None:
    FORWARD.enter_phase()
    FORWARD.leave_later()
    with profile_section("loss"):
        time.sleep(0.002)
    with BACKWARD:
        time.sleep(0.002)
    prof.step()
    assert counts(prof) == {"forward": 1, "loss": 1, "backward": 1}
    rows = {row.name: row.total_ms for row in prof.report().steps.rows}
    assert set(rows) == {"forward", "backward", "(unaccounted)"}
    assert rows["forward"] >= 2 <= rows["backward"]


def test_a_parked_section_is_one_sample_of_its_parts(prof) -> None:
    def part(resumed: bool) -> None:
        assert FORWARD.resume() is resumed
        if not resumed:
            assert FORWARD.enter_phase() is True
            FORWARD.leave_later()
        time.sleep(0.002)
        FORWARD.park()
        FORWARD.park()
        assert FORWARD.phase_is_open() is False

    for _ in range(2):
        part(False)
        with profile_section("between"):
            time.sleep(0.02)
        part(True)
        with BACKWARD:
            assert FORWARD.resume() is False
        prof.step()
    assert counts(prof) == {"forward": 2, "between": 2, "backward": 2}
    report = prof.report()
    rows = {row.name: row.total_ms for row in report.steps.rows}
    assert rows["forward"] == pytest.approx(report.section("forward").total_ms, abs=0.01)
    assert 8 <= rows["forward"] < rows["between"]


def test_a_parked_section_ends_with_the_step_and_the_fetch(prof) -> None:
    loader = iter(prof.loader([1, 2], "main"))
    for end in (prof.step, lambda: next(loader), FORWARD.leave_now):
        assert FORWARD.enter_phase() is True
        FORWARD.leave_later()
        FORWARD.park()
        assert not FORWARD.phase_is_open()
        end()
        assert FORWARD.resume() is False
    assert {row.name: row.count for row in prof.report().sections}["forward"] == 3
    assert prof.snapshot().counters == {}


def test_it_ends_with_the_section_around_it(prof) -> None:
    with profile_section("around"):
        FORWARD.enter_phase()
        FORWARD.leave_later()
    time.sleep(0.01)
    assert counts(prof) == {"around": 1, "forward": 1}
    report = prof.report()
    assert report.section("forward").total_ms <= report.section("around").total_ms


def test_it_ends_with_the_step_and_belongs_to_the_batch_before(prof) -> None:
    loader = iter(prof.loader([1, 2], "main"))
    next(loader)
    for end in (prof.step, lambda: next(loader), FORWARD.leave_now):
        FORWARD.enter_phase()
        FORWARD.leave_later()
        end()
        assert FORWARD.enter_phase() is True
        FORWARD.__exit__()
    prof.step()
    assert counts(prof)["forward"] == 6


def test_a_loop_that_alternates_loaders_charges_the_one_before(prof) -> None:
    first, second = (iter(prof.loader([1, 2], name)) for name in ("first", "second"))
    next(first)
    FORWARD.enter_phase()
    FORWARD.leave_later()
    next(second)
    phases = {row.name: row.phases for row in prof.snapshot().loaders}
    assert phases["first"]["forward"][0] == 1
    assert "forward" not in phases["second"]


def test_leaving_it_twice_is_once(prof) -> None:
    FORWARD.enter_phase()
    FORWARD.leave_later()
    FORWARD.leave_now()
    FORWARD.leave_now()
    assert counts(prof) == {"forward": 1}


def test_a_parked_section_goes_on_while_functions_are_paused() -> None:
    def train() -> None:
        def part() -> None:
            if not FORWARD.resume() and FORWARD.enter_phase():
                FORWARD.leave_later()
            FORWARD.park()

        part()
        part()
        with BACKWARD:
            time.sleep(0.001)

    schedule = fastprof.Schedule(wait=1, warmup=0, active=1, repeat=0)
    with fastprof.Profiler(functions=True, schedule=schedule, skip_first=0) as prof:
        for _ in range(6):
            train()
            prof.step()
    snapshot = prof.snapshot()
    nodes = snapshot.threads[0].nodes
    above = {
        snapshot.keys[nodes.key[nodes.parent[row]]].name
        for row, key in enumerate(nodes.key)
        if snapshot.keys[key].name == "forward"
    }
    assert above == {"part"}
    assert {row.name: row.count for row in prof.report().sections} == {"forward": 6, "backward": 6}
    assert snapshot.counters == {}
