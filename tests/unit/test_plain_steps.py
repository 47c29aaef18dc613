"""The table of plain steps: what they know themselves, and what steps with functions show."""

from __future__ import annotations

from dataclasses import replace

import fastprof
import pytest
from fastprof.report.build import build_report
from fastprof.report.model import Report
from fastprof.report.plain_steps import plain_table
from fastprof.snapshot import Steps
from fastprof.snapshot.outliers import OutlierSnapshot, OutlierStep
from fastprof.tables.report import steps_line


@pytest.fixture(scope="module")
def recorded() -> Report:
    """Return a report whose plain steps are the recorded ones once more."""
    prof = fastprof.Profiler(gpu=False, functions=True, overhead=0)
    with prof:
        for i in range(600):
            with fastprof.profile_section("forward"):
                sum(range(300))
            if i % 50 == 0:
                with fastprof.profile_section("rare"):
                    pass
            prof.step()
    whole = prof.report().snapshot
    plain = replace(whole.steps, count=whole.steps.measured, skipped=0, apart=0, unprofiled=())
    meta = {**whole.meta, "overhead_budget": 0.01, "sections_off": True}
    report = build_report(replace(whole, meta=meta, plain_steps=plain))
    assert report.plain is not None
    return report


def test_a_rare_section_by_chance_in_more_steps_with_functions_was_not_off(
    recorded: Report,
) -> None:
    assert recorded.plain is not None
    times = {row.name: row.steps for row in recorded.plain.rows}
    n, measured = recorded.plain.measured, recorded.steps.measured

    def shown(rare: int, forward: int) -> list[int | None]:
        rows = tuple(
            replace(row, steps={"rare": rare, "forward": forward}.get(row.name))
            for row in recorded.steps.rows
        )
        table = plain_table(recorded.snapshot, replace(recorded.steps, rows=rows))
        return [row.steps for row in table.rows] if table is not None else []

    twice = max(1, round(2 * (times["rare"] or 0) / n * measured))
    assert {n, times["rare"]} <= set(shown(twice, measured))
    assert set(shown(measured, measured)) == {n, None}  # "rare" in proportion


def test_the_line_of_steps_says_which_of_them_its_times_are_of(recorded: Report) -> None:
    """It said: 732 steps measured, 36 skipped; 214 with functions, of the others; ms per step."""
    line = steps_line(recorded)
    assert f" skipped, {recorded.steps.measured} with functions; of the others, ms per step" in line


def test_kinds_of_time_that_are_known_without_functions_are_those_of_plain_steps(
    recorded: Report,
) -> None:
    snapshot = recorded.snapshot
    assert snapshot.plain_steps is not None

    def split(of: Steps, waits: int) -> Steps:
        cpu_wait, gc = of.sum_ns * waits // 100, of.sum_ns // 50
        kinds = (("compute", of.sum_ns - cpu_wait - gc), ("gc", gc), ("cpu_wait", cpu_wait))
        series = replace(of.series, cpu_wait_ns=())
        return replace(of, split=kinds, series=series, split_missing=())

    whole = replace(
        snapshot, steps=split(snapshot.steps, 80), plain_steps=split(snapshot.plain_steps, 30)
    )
    steps = build_report(whole).shown_steps
    found = {row.name: row.share for row in steps.split}
    assert found["cpu_wait"] == pytest.approx(0.3, abs=1e-4)
    assert found["gc"] == pytest.approx(0.02, abs=1e-4)
    assert sum(row.total_ns for row in steps.split) == steps.wall_ns


def test_data_is_that_of_plain_steps_where_the_other_sections_were_off(recorded: Report) -> None:
    """The hook makes a loader's Python slower: its share of steps with functions is larger."""
    snapshot = recorded.snapshot
    plain = snapshot.plain_steps
    assert plain is not None
    data = next(i for i, key in enumerate(snapshot.keys) if key.name == "forward")
    keys = tuple(replace(k, name="data") if i == data else k for i, k in enumerate(snapshot.keys))
    rare = next(i for i, key in enumerate(snapshot.keys) if key.name == "rare")
    rows = tuple(
        replace(r, sum_ns=plain.sum_ns // 10) if r.key == data else replace(r, steps=0, sum_ns=0)
        for r in plain.rows
    )
    always = replace(snapshot.steps, rows=tuple(
        replace(r, steps=snapshot.steps.measured) if r.key == rare else r
        for r in snapshot.steps.rows
    ))  # fmt: skip
    made = build_report(
        replace(snapshot, keys=keys, steps=always, plain_steps=replace(plain, rows=rows))
    ).shown_steps
    found = {row.name: row.share for row in made.rows}
    assert found["data"] == pytest.approx(0.1, abs=1e-3)
    assert found["rare"]  # in proportion to the steps with functions
    assert sum(row.total_ns for row in made.rows) == made.wall_ns


@pytest.mark.parametrize("was_on", [False, True])
def test_a_slow_step_whose_sections_were_off_is_compared_with_what_it_timed(
    recorded: Report, was_on: bool
) -> None:
    """More time was outside of sections than the step had more than others."""
    snapshot = recorded.snapshot
    plain = snapshot.plain_steps
    assert plain is not None
    forward = next(i for i, key in enumerate(snapshot.keys) if key.name == "forward")
    mean_ns = plain.sum_ns // plain.measured
    usual_ns = mean_ns * 9 // 10
    always, seldom = (
        tuple(replace(r, steps=n, sum_ns=n * usual_ns) for r in of.rows if r.key == forward)
        for of, n in ((snapshot.steps, snapshot.steps.measured), (plain, plain.measured // 2))
    )
    slow = OutlierStep(
        index=20, start_ns=0, wall_ns=100 * mean_ns, usual=False,
        sections=((forward, usual_ns),) if was_on else (),
        window_steps=0, window_ns=0, window_usual=False, rows=(), rest_ns=0, plain=True,
    )  # fmt: skip
    kept = OutlierSnapshot(
        thread=0, limit=5, usual_steps=0, usual_ns=0, usual_sections=(), usual_row_steps=0,
        kept=(slow,),
    )  # fmt: skip
    whole = replace(
        snapshot, outliers=kept, steps=replace(snapshot.steps, rows=always),
        plain_steps=replace(plain, rows=seldom),
    )  # fmt: skip
    made = build_report(whole).shown_steps
    assert {row.name for row in made.rows} >= {"forward"}  # in proportion
    (found,) = made.outliers
    excess = found.wall_ms - found.typical_ms
    rows = {row.name: row for row in found.sections}
    assert rows["(unaccounted)"].excess_ms == pytest.approx(excess, rel=0.02 if was_on else 1e-9)
    assert ("forward" in rows) == was_on
    where = "outside of sections" if was_on else "in no section that was on"
    assert any(text.endswith(where) for text in found.sentences), found.sentences
