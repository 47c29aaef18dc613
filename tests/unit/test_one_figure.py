"""A quantity has one figure, wherever a run is shown."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import Any

import fastprof
import pytest
from fastprof.render.html import write
from fastprof.render.screen import screen_lines
from fastprof.report.figures import number, percent, percent_at_most
from fastprof.results.report import Report, build_report
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS, PhaseTime
from unit.comparisons import run
from unit.snapshots import MS, US, Builder, Node, cost, py, section

N = 100
#: fastprof's own functions run inside the sections that its hooks open.
OWN = "/site-packages/fastprof/integrations/_torch/hooks.py"


@pytest.fixture(scope="module")
def report() -> Report:
    """Return steps of 10 ms, with calls that cost much and functions of fastprof in sections."""
    made = run([10.0] * N, {"data": [2.0] * N, "forward": [6.0] * N}).snapshot
    builder = Builder()

    def part(name: str, ms: float, calls: int) -> Node:
        called = Node(py("called"), calls * N, round(N * ms / 2 * MS))
        own = Node(py("enter", 1, OWN), N, N * MS // 10)
        rest = round(N * ms * MS) - called.self_ns - own.self_ns
        return Node(section(name), N, rest, [called, own])

    builder.thread(part("data", 2.0, 100), part("forward", 6.0, 900), root_ns=N * 2 * MS)
    keys = {made.keys[row.key].name: row.key for row in made.steps.rows}
    moved = {key: builder.key(section(name)) for name, key in keys.items()}
    series = made.steps.series
    steps = replace(
        made.steps,
        rows=tuple(replace(row, key=moved[row.key]) for row in made.steps.rows),
        series=replace(
            series, sections=tuple((moved[key], column) for key, column in series.sections)
        ),
        split=(("compute", N * 8 * MS), ("data", N * 2 * MS)),
    )
    (tree,) = builder.threads
    builder.threads = [
        replace(tree, nodes=replace(tree.nodes, phase=(STEPS,) * len(tree.nodes.parent)))
    ]
    return build_report(
        builder.snapshot(
            steps=steps,
            sections=tuple(
                replace(builder.stats(name, [round(ms * MS)] * N), phase=STEPS)
                for name, ms in (("data", 2.0), ("forward", 6.0))
            ),
            phases=(PhaseTime(RUN_PHASES[STEPS], N * 10 * MS, 1),),
            duration_ns=N * 10 * MS,
            calibration=cost(python=(US, US)),
            meta={**made.meta, "own_ns": N * MS // 5},
        )
    )


def cells(lines: list[str], title: str, name: str) -> list[str]:
    """Return the cells of a row of the table that begins with ``title``."""
    at = next(i for i, line in enumerate(lines) if line.startswith(title))
    row = next(line for line in lines[at + 1 :] if line.startswith(name))
    return row.split()


@pytest.mark.parametrize("name", ["data", "forward"])
def test_a_section_of_the_step_has_one_time(report: Report, name: str) -> None:
    row = next(row for row in report.steps.rows if row.name == name)
    assert (
        row.mean_ms < {"data": 1.9, "forward": 4.9}[name]
    )  # without the hook, and without own code
    ms, share = number(row.mean_ms), percent(row.share)
    found: dict[str, Any] = {}

    found["screen"] = cells(screen_lines(report, 80), "where a step goes", name)[1:3]
    full = report.to_text(full=True).splitlines()
    found["steps"] = cells(full, "Where a step goes (wall", name)[3:5]
    _, _, _, _, of_sections, mean, *_ = cells(full, "Sections", name)
    found["sections"] = [mean, of_sections]

    made = json.loads(report.to_json())
    parts = next(part for part in made["steps"]["rows"] if part["name"] == name)
    found["JSON, steps"] = [number(parts["mean_ms"]), percent(parts["share"])]
    (section_row,) = (part for part in made["sections"] if part["name"] == name)
    found["JSON, sections"] = [number(section_row["mean_ms"]), percent(section_row["share"])]

    effect = fastprof.compare(report, report).pairs[0].effect(name)
    assert effect is not None
    found["compare"] = [number(effect.before_ms), share]
    assert found == {key: [ms, share] for key in found}


def test_loading_data_has_one_share(report: Report) -> None:
    text = " ".join(screen_lines(report, 200))
    (row,) = (row for row in report.steps.rows if row.name == "data")
    assert f"loading data {percent(row.share)} %" in text


def test_the_stated_overhead_includes_the_row_of_fastprofs_cost(report: Report) -> None:
    lines = screen_lines(report, 200)
    of_row = float(cells(lines, "where a step goes", "(fastprof)")[2])
    stated = re.search(r"cost ([\d.]+) %", lines[0])
    assert stated is not None
    assert of_row <= float(stated[1])
    shown = f"fastprof cost {stated[1]} %"
    assert report.overhead.text.startswith(shown)
    assert shown in report.to_text(full=True)
    assert percent(json.loads(report.to_json())["overhead"]["share"]) == stated[1]
    page = io.StringIO()
    write(report, page)
    assert f'{stated[1]} %</dd><dd class="minor">of the loop' in page.getvalue()
    assert "adds" not in " ".join(lines)


def test_a_cost_is_one_figure_with_its_bound() -> None:
    assert percent_at_most(0.13, 0.413) == "13.0 % (at most 41.3 %)"
    assert percent_at_most(0.413, 0.413) == "41.3 %"
    assert percent_at_most(None, None) == "n/a"
