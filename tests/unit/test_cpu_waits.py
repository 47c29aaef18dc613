"""Parts of a step without its wait for a CPU, against waits that are spread by chance."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from fastprof.findings.cpu_waits import cpu_waits
from fastprof.report.steps import StepSeriesView
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st

STEPS = 100


def series(wait_ms: float, switches: int) -> StepSeriesView:
    """Return a series of ten equal steps."""
    return StepSeriesView(
        wall_ms=(100.0,) * 10, cpu_wait_ms=(wait_ms,) * 10, switches=(switches,) * 10
    )


def test_the_interval_holds_the_part_of_computing_in_nine_of_ten_runs() -> None:
    """Waits of random length hit a function by chance; truth: it takes 20 % of the CPU time."""
    draw, held, above = random.Random(6), 0, 0
    for _ in range(400):
        waits = [draw.uniform(2.0, 6.0) for _ in range(300)]
        hit = sum(ms for ms in waits if draw.random() < 0.2)
        whole = sum(waits) / STEPS
        # 4 ms of 20 ms on the CPU, and its part of the waits.
        rows = {"(unaccounted)": 20.0 + whole}
        found = cpu_waits(rows, whole, {}, series(whole, 3), series(whole, 3), STEPS)
        part = found.without(4.0 + hit / STEPS, {})
        held += part.low <= 0.2 <= part.high
        above += part.middle > 0.2
    assert held >= 350
    assert 160 < above < 240


def test_the_wait_of_a_section_is_known() -> None:
    """A thread that slept runs at first, so the same section may have all waits of each step."""
    rows = {"data": 40.0, "forward": 20.0, "backward": 40.0}
    waits = {"data": 30.0, "backward": 20.0}
    found = cpu_waits(rows, 50.0, waits, series(50.0, 5), series(50.0, 5), STEPS)
    for name, ms in (("data", 10.0), ("forward", 20.0), ("backward", 20.0)):
        part = found.without(rows[name], {name: rows[name]})
        assert part == found.without(rows[name], {}, frozenset({name}))
        assert part.low == part.middle == part.high == pytest.approx(ms / 50.0)
    # Chance concerns a function in it.
    half = found.without(20.0, {"data": 20.0})
    assert half.low < 0.1 < half.high
    assert half.middle == pytest.approx(0.1)


def test_steps_without_a_wait_show_how_long_sections_take() -> None:
    """A step after a quiet one is not read: dqn_replay.py had 8.14 of 8.25 ms of forward as wait.

    Every third step waits 30 ms, in forward; only a fifth of the waits was read, all in backward.
    """
    count = 90
    waits = tuple(30.0 * (i % 3 == 2) for i in range(count))
    steps = StepSeriesView(
        wall_ms=tuple(4.0 + wait for wait in waits), cpu_wait_ms=waits, switches=(1,) * count,
        names={"forward": tuple(1.0 + wait for wait in waits), "backward": (2.0,) * count},
    )  # fmt: skip
    rows = {"forward": 11.0, "backward": 2.0, "(unaccounted)": 1.0}
    found = cpu_waits(rows, 10.0, {"backward": 1.5}, steps, steps, count)
    for name, part in (("forward", 0.25), ("backward", 0.5)):
        assert found.without(rows[name], {name: rows[name]}).middle == pytest.approx(part)
    assert found.rest.ms - found.rest.wait_ms == pytest.approx(1.0)
    # Sections that run in other steps only, and longer work, are not seen in these.
    seldom = {**steps.names, "saving": tuple(0.3 * (wait > 0) for wait in waits)}
    for other in (replace(steps, names=seldom), steps.only(range(9)),
                  replace(steps, wall_ms=tuple(1.0 + 33.0 * (w > 0) for w in waits))):  # fmt: skip
        again = cpu_waits({**rows, "saving": 0.1}, 10.0, {"backward": 1.5}, other, other, count)
        assert again.sections["forward"].wait_ms == 0.0


def test_steps_without_a_wait_may_be_longer_than_the_plain_ones() -> None:
    """Sections and functions make the steps with a series longer; the shown steps are plain ones.

    tiny_batches.py: 0.64 ms against 0.41, and 4 of 47 waits read: "this is 0 to 100 % of a step".
    """
    count = 90
    waits = tuple(30.0 * (i % 30 == 2) for i in range(count))
    steps = StepSeriesView(
        wall_ms=tuple(8.0 + wait for wait in waits), cpu_wait_ms=waits, switches=(1,) * count,
        names={"forward": (2.0,) * count, "backward": tuple(4.0 + wait for wait in waits)},
    )  # fmt: skip
    # A plain step runs for 4 ms and waits for 4 ms; one of few waits was read, in backward.
    rows = {"forward": 2.0, "backward": 4.0, "(unaccounted)": 2.0}
    found = cpu_waits(rows, 4.0, {"backward": 0.1}, steps, steps, 10 * count, 10 * count)
    assert found.unread == 0.0
    for name, part in (("forward", 0.25), ("backward", 0.5), ("(unaccounted)", 0.25)):
        assert found.without(rows[name], {name: rows[name]}).middle == pytest.approx(part)
    part = found.without(6.0, {}, frozenset({"forward", "backward"}))
    assert 0.7 < part.low <= part.high < 0.8


_MS = st.floats(0.0, 200.0)
_BY_SECTION = st.dictionaries(st.sampled_from(["data", "forward", "(unaccounted)"]), _MS)


@settings(max_examples=examples(200))
@given(_BY_SECTION, _MS, _BY_SECTION, _BY_SECTION, st.integers(0, 50))
def test_any_recording_has_a_part(
    rows: dict[str, float],
    wait: float,
    waits: dict[str, float],
    places: dict[str, float],
    switches: int,
) -> None:
    found = cpu_waits(rows, wait, waits, series(wait, switches), series(wait, switches), STEPS)
    for names in (frozenset(), frozenset({"data"}), frozenset({"nothing"})):
        assert 0.0 < found.part(names) <= 1.0
        if found.matter:
            part = found.without(sum(places.values()), places, names)
            assert 0.0 <= part.low <= part.middle <= part.high


def test_a_section_whose_waits_were_hardly_read_is_not_known() -> None:
    """Nine of hundreds of waits were read: chance decides how many of them were in data.

    Truth: all sections wait in proportion to their CPU time, and data has 20 % of it.
    """
    draw, held = random.Random(7), 0
    rows = {"data": 1.0, "forward": 2.0, "backward": 2.0}
    for _ in range(200):
        hit = draw.choices(list(rows), weights=list(rows.values()), k=9)
        waits = {name: 0.05 * hit.count(name) for name in rows}
        found = cpu_waits(rows, 4.0, waits, series(4.0, 1), series(4.0, 1), STEPS)
        part = found.without(1.0, {"data": 1.0})
        held += part.low <= 0.2 <= part.high
    assert held >= 170


def test_no_part_of_a_step_is_more_than_the_step() -> None:
    """A section without a read wait, longer than the whole step without its waits."""
    rows = {"data": 3.0, "forward": 3.0}
    found = cpu_waits(rows, 4.0, {"forward": 0.1}, series(4.0, 1), series(4.0, 1), STEPS)
    part = found.without(3.0, {"data": 3.0})
    assert part.middle <= part.high <= 1.0
