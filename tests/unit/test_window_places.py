"""The steps at which windows begin."""

from __future__ import annotations

from collections import Counter

import pytest
from fastprof.session.window_places import BASE, MOST_LEVEL, level_of, next_place, place


def places(level: int, end: int) -> list[int]:
    found, at = [], 0
    while (at := next_place(at, level)) < end:
        found.append(at)
        at += 1
    return found


def test_each_stratum_has_one_window() -> None:
    for level in range(8):
        size = BASE << level
        for stratum in range(200):
            assert place(stratum, level) // size == stratum


def test_the_windows_of_a_level_are_some_of_those_below() -> None:
    """Ranks with another level still have windows in the same steps."""
    for level in range(8):
        below = set(places(level, 100_000))
        assert set(places(level + 1, 100_000)) < below


@pytest.mark.parametrize("level", [0, 3, 6])
@pytest.mark.parametrize("period", [2, 3, 5, 7, 10, 16, 25, 32, 50, 64, 100])
def test_windows_neither_miss_nor_favour_periodic_work(level: int, period: int) -> None:
    """Each step of a period is met as often as any other, within four standard deviations."""
    found = Counter(at % period for at in places(level, (BASE << level) * 200 * period))
    n = sum(found.values())
    usual = n / period
    allowed = 4 * (usual * (1 - 1 / period)) ** 0.5
    assert all(abs(found[i] - usual) <= allowed for i in range(period))


def test_a_window_is_never_before_the_step_asked_for() -> None:
    for after in range(3000):
        at = next_place(after, 2)
        assert after <= at < after + 2 * (BASE << 2)


def test_the_level_is_the_lowest_that_costs_little_enough() -> None:
    assert [level_of(p) for p in (0, 1, 16, 16.5, 32, 33, 64 * 16)] == [0, 0, 0, 1, 1, 2, 6]
    assert level_of(float("inf")) == MOST_LEVEL
