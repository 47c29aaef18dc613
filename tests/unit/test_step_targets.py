"""The ideal shares of a step stand beside the measured ones."""

from __future__ import annotations

import pytest
from fastprof.findings.thresholds import TARGETS
from fastprof.report.targets import STEP_TARGETS
from fastprof.results.report import build_report
from fastprof.snapshot import StepRow, Steps
from fastprof.tables.report import all_tables
from unit.snapshots import MS, Builder, section


def step_table(**sections):
    builder = Builder()
    rows = tuple(
        StepRow(builder.key(section(name)), 10, 10 * ms * MS) for name, ms in sections.items()
    )
    builder.thread(root_ns=1000 * MS)
    run = builder.snapshot(
        steps=Steps(10, 0, 1000 * MS, 0.1, 100 * MS, 100 * MS, (100 * MS,) * 10, rows=rows)
    )
    table = next(t for t in all_tables(build_report(run)) if t.title.startswith("Where a step"))
    return table.headers, {row[0]: dict(zip(table.headers, row)) for row in table.rows}


def test_s1_16_a_step_has_the_five_sections_of_the_guide():
    _, rows = step_table(data=15, forward=35, backward=30, optimizer=14, callbacks=6)
    assert list(rows) == [
        "data", "forward", "backward", "optimizer", "callbacks", "(unaccounted)", "step",
    ]  # fmt: skip
    shares = [float(row["share %"]) for row in rows.values()]
    assert shares == [15.0, 35.0, 30.0, 14.0, 6.0, 0.0, 100.0]


def test_s1_17_the_target_stands_next_to_the_measured_share():
    headers, rows = step_table(data=15, forward=35, backward=30, optimizer=14, callbacks=6)
    assert headers.index("target %") == headers.index("share %") + 1
    assert {name: row["target %"] for name, row in rows.items()} == {
        "data": "<10", "forward": "35-40", "backward": "40-45", "optimizer": "10-15",
        "callbacks": "", "(unaccounted)": "<10", "step": "",
    }  # fmt: skip


def test_s1_17_steps_without_the_four_phases_have_no_target():
    headers, _ = step_table(collect=40, learn=60)
    assert "target %" not in headers


@pytest.mark.parametrize(
    ("short", "long"),
    [("data", "data_loading"), ("forward", "forward_pass"), ("backward", "backward_pass"),
     ("optimizer", "optimizer_step")],
)  # fmt: skip
def test_s1_17_either_name_of_a_phase_has_its_target(short, long):
    assert STEP_TARGETS.get(short) == STEP_TARGETS.get(long) is not None
    assert STEP_TARGETS.get("validation") is None


def test_s1_17_the_targets_table_has_the_same_figures():
    printed = {row.metric: row.target for row in TARGETS}
    assert printed["Forward pass"] == f"{STEP_TARGETS.get('forward').text} %"
    assert printed["Backward pass"] == f"{STEP_TARGETS.get('backward').text} %"
    assert printed["Data loading"] == f"{STEP_TARGETS.get('data').text} %"
    # The guide's table of targets has only the upper limit.
    assert printed["Optimizer"] == f"<{STEP_TARGETS.get('optimizer').text.split('-')[1]} %"


def test_the_rows_of_a_step_are_in_its_order() -> None:
    """A thread trained: its first forward was recorded last, and was shown below backward."""
    builder = Builder()
    for name in ("backward", "optimizer", "forward"):
        builder.key(section(name))
    rows = tuple(
        StepRow(builder.key(section(name)), 10, 100 * MS)
        for name in ("forward", "backward", "optimizer")
    )
    builder.thread(root_ns=1000 * MS)
    steps = Steps(10, 0, 1000 * MS, 0.1, 100 * MS, 100 * MS, (100 * MS,) * 10, rows=rows)
    found = build_report(builder.snapshot(steps=steps)).steps.rows
    assert [row.name for row in found] == ["forward", "backward", "optimizer", "(unaccounted)"]
