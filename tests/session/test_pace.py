"""How often a run does what is due at every so many steps; no test depends on the machine."""

from __future__ import annotations

from itertools import pairwise

import fastprof
import pytest
from fastprof.session import pace
from fastprof.session.pace import Pace
from fastprof.session.profiler import run_of


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def perf_counter_ns(self) -> int:
        return self.ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    return clock


@pytest.mark.parametrize("every", [1, 7, 50])
@pytest.mark.parametrize("step_ns", [0, 130_000, 800_000, 17_000_000, 2_000_000_000])
def test_work_is_due_at_multiples_and_rarely_in_short_steps(
    clock: Clock, every: int, step_ns: int
) -> None:
    one = Pace(every)
    due = []
    for count in range(1, 20_001):
        clock.ns += step_ns
        if count >= one.next_step(count - 1):
            due.append(count)
    assert not any(count % every for count in due)
    assert due[: 200 // every] == list(range(every, 201, every))[: 200 // every]
    later = [b - a for a, b in pairwise(due) if a > 200 + every]
    if step_ns:
        expected = max(every, 100_000_000 // step_ns)
        assert expected <= min(later) <= max(later) < expected + every
    else:  # a clock that stands still
        assert set(later) == {every}


def test_a_run_of_short_steps_is_seldom_interrupted(clock: Clock) -> None:
    with fastprof.Profiler(functions=False, gpu=False) as prof:
        run = run_of(prof)
        before, after = [], run._after_step
        run._after_step = lambda count: (before.append(count), after(count))[1]  # type: ignore[method-assign, func-returns-value]
        for _ in range(10_000):
            clock.ns += 130_000
            prof.step()
    assert len([count for count in before if count > 1000]) <= 9_000 / (100 / 0.13) + 25


def test_a_program_that_takes_the_metrics_gets_them_when_they_are_due(clock: Clock) -> None:
    with fastprof.Profiler(functions=False, gpu=False) as prof:
        last = []
        for count, _ in enumerate(prof.loader(range(1000), name="a"), 1):
            clock.ns += 130_000
            with fastprof.profile_section("forward"):
                pass
            prof.step()
            if count % 50 == 0:
                last.append(prof.last_metrics["profile/train/dl_a/time_forward_ms"])
    assert len({id(metric) for metric in last}) == 20
    assert {metric.count for metric in last} == {50}
