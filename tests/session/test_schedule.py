"""Windows of the function layer."""

from __future__ import annotations

import warnings

import fastprof
import pytest
from fastprof import Schedule
from fastprof.session.schedule import NONE, WARMUP
from hypothesis import given, settings
from hypothesis import strategies as st

small = st.integers(min_value=0, max_value=6)


def test_s0_15_e1_records_steps_8_to_10_and_14_to_16_counted_from_0() -> None:
    schedule = Schedule(skip_first=5, wait=2, warmup=1, active=3, repeat=2)
    assert [s for s in range(40) if schedule.records(s)] == [8, 9, 10, 14, 15, 16]
    assert [s for s in range(40) if schedule.action(s) == WARMUP] == [7, 13]
    assert all(schedule.action(s) == NONE for s in range(17, 40))


def test_s2_05_e2_two_cycles_of_wait_1_warmup_1_active_3() -> None:
    schedule = Schedule(skip_first=0, wait=1, warmup=1, active=3, repeat=2)
    assert {s for s in range(30) if schedule.records(s)} == {2, 3, 4, 7, 8, 9}


@settings(deadline=None)
@given(small, small, small, st.integers(1, 6), small)
def test_s0_15_equals_torch_profiler_schedule(skip_first, wait, warmup, active, repeat) -> None:
    profiler = pytest.importorskip("torch.profiler")
    ours = Schedule(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about a warm-up of 0
        theirs = profiler.schedule(
            skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat
        )
    for step in range(60):
        assert ours.action(step) == theirs(step).name.lower()


def test_s0_14_defaults_are_those_of_the_six_keys() -> None:
    schedule = Schedule()
    assert (schedule.skip_first, schedule.wait, schedule.warmup) == (1, 0, 1)
    assert (schedule.active, schedule.repeat) == (3, 1)


@pytest.mark.parametrize("field", ["skip_first", "wait", "warmup", "active", "repeat"])
def test_s0_14_invalid_values_are_rejected_before_training(field) -> None:
    with pytest.raises(ValueError, match=field):
        Schedule(**{field: -1})
    for junk in (1.5, "2", None, True):
        with pytest.raises(TypeError, match=field):
            Schedule(**{field: junk})


def test_s0_14_active_must_be_positive_and_the_value_is_frozen() -> None:
    with pytest.raises(ValueError, match="active"):
        Schedule(active=0)
    with pytest.raises(AttributeError):
        Schedule().active = 5  # type: ignore[misc]


def test_s0_15_functions_are_recorded_in_these_steps_only_and_sections_in_all() -> None:
    def work(step: int) -> None:
        pass

    schedule = Schedule(skip_first=2, wait=1, warmup=1, active=2, repeat=2)
    recorded = [s for s in range(20) if schedule.records(s)]
    assert recorded == [4, 5, 8, 9]
    with fastprof.Profiler(functions=True, schedule=schedule) as prof:
        for step in range(20):
            with fastprof.profile_section("forward"):
                work(step)
            prof.step()
    snapshot = prof.snapshot()
    calls = sum(
        thread.nodes.calls[row]
        for thread in snapshot.threads
        for row in range(len(thread.nodes))
        if snapshot.keys[thread.nodes.key[row]].name == "work"
    )
    assert calls == len(recorded)
    assert sum(s.count for s in snapshot.sections) == 20
