"""One quantity has one figure, whatever shows it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof import profile_section
from fastprof.report.figures import duration, number
from fastprof.results.report import Report
from fastprof.tables.report import all_tables


def batches(count: int) -> Iterator[int]:
    """Batches whose end is as slow as several of them: workers end, a file is closed."""
    for i in range(count):
        time.sleep(0.001)
        yield i
    time.sleep(0.01)


class Logger:
    def __init__(self) -> None:
        self.values: list[tuple[dict[str, float], int]] = []

    def log_metrics(self, values: dict[str, float], step: int) -> None:
        self.values.append((dict(values), step))


def epochs(profiler: fastprof.Profiler) -> None:
    for _ in range(4):
        for _ in profiler.loader(batches(5), name="train"):
            with profile_section("forward"), profile_section("attention"):
                sum(range(1000))
            with profile_section("optimizer"):
                time.sleep(0.0005)
            profiler.step()
    profiler.step()  # nothing is after it: how much of it the report moves is the machine's speed


def accumulating(profiler: fastprof.Profiler) -> None:
    """Steps of two batches, with a validation and a checkpoint between them."""
    for _ in range(3):
        for i, _ in enumerate(profiler.loader(batches(6), name="train")):
            with profile_section("forward"):
                sum(range(1000))
            if i % 2:
                with profile_section("checkpoint") if i == 3 else contextlib.nullcontext():
                    time.sleep(0.0005)
                profiler.step()
        for _ in profiler.loader(batches(2), name="test", split="val"):
            with profile_section("forward"):
                time.sleep(0.0005)
    profiler.step()


PROGRAMS = (epochs, accumulating)


def recorded(program: Any, logger: Logger | None = None, **options: Any) -> Report:
    options = {"skip_first": 1, "log_every": 1, "logger": logger or Logger(), **options}
    with fastprof.Profiler(**options) as profiler:
        program(profiler)
    return profiler.report()


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda program: program.__name__)
def report(request: pytest.FixtureRequest) -> Report:
    return recorded(request.param, functions=True)


def cells(report: Report) -> dict[str, list[dict[str, str]]]:
    """Return the rows of each table of the full text, by title."""
    tables: dict[str, list[dict[str, str]]] = {}
    for table in all_tables(report):
        rows = [dict(zip(table.headers, row, strict=True)) for row in table.rows]
        tables[re.split(r" \(", table.title)[0]] = rows
    return tables


def test_a_section_has_the_time_of_its_row_of_the_steps(report: Report) -> None:
    """The end of a loader is no batch, but its time is in the steps and in the functions."""
    sections = {row.name: row for row in report.sections}
    costs = sum(row.total_ms for row in report.steps.rows if row.name == "(fastprof)")
    for row in report.steps.rows:
        if row.name.startswith("("):
            continue
        assert sections[row.name].total_ms == pytest.approx(row.total_ms)
        inside = sum(function.self_ms for function in report.functions_in(row.name))
        # Costs of sections are estimated.
        assert 0.99 * row.total_ms - 0.1 <= inside <= 1.01 * row.total_ms + costs + 0.1


def test_the_parts_of_a_step_add_up_to_it(report: Report) -> None:
    steps = report.steps
    for rows in (steps.rows, steps.split):
        assert sum(row.total_ns for row in rows) == steps.wall_ns
        assert sum(row.mean_ms for row in rows) == pytest.approx(steps.mean_ms)
        assert sum(row.share or 0.0 for row in rows) == pytest.approx(1.0)
    series = steps.series
    assert sum(series.wall_ms) == pytest.approx(steps.wall_ms)
    whole = {row.name: row.total_ms for row in steps.rows}
    costs = whole.get("(fastprof)", 0.0)
    for name, column in series.names.items():  # as measured
        assert whole[name] <= sum(column) + 1e-6
        assert sum(column) <= whole[name] + costs + 1e-6


def test_text_json_csv_and_page_have_the_figures_of_the_report(
    report: Report, tmp_path: Path
) -> None:
    known = json.loads(report.to_json())
    page = io.StringIO()
    report.save(tmp_path / "page.html")
    page_text = (tmp_path / "page.html").read_text()
    assert page.tell() == 0
    tables, full = cells(report), report.to_text(full=True)
    for table, kind, names in (
        ("Where a step goes", "step_sections", ("total_ms", "mean_ms")),
        ("Sections, in order of first use", "sections", ("total_ms", "mean_ms", "p50_ms")),
    ):
        columns = {"mean_ms": "ms per step"} if kind == "step_sections" else {}
        told = {row["section"]: row for row in tables[table]}
        in_json = known["sections"] if kind == "sections" else known["steps"]["rows"]
        in_csv = {row["name"]: row for row in csv.DictReader(io.StringIO(report.to_csv(kind)))}
        for row in in_json:
            shown = told[row["name"]]
            for name in names:
                if name not in row:  # a total in ns
                    continue
                column = columns.get(name, name.replace("_", " "))
                text = number(row[name])
                assert shown[column] == text
                assert float(in_csv[row["name"]][name]) == pytest.approx(row[name])
                assert text in full
                assert text in page_text
    mean = duration(report.steps.mean_ms or 0.0)
    for said in (full, page_text, report.to_markdown(), report.to_text()):
        assert mean in said or number(report.steps.mean_ms) in said


def test_the_screen_has_the_figures_of_the_full_report(report: Report) -> None:
    rows = {row.name: row for row in report.steps.rows}
    screen = report.to_text().splitlines()
    start = next(i for i, line in enumerate(screen) if line.startswith("where a step goes"))
    seen = 0
    for line in screen[start + 1 :]:
        name, *figures = line.split()
        if name not in rows:
            break
        assert figures[0] == number(rows[name].mean_ms)
        seen += 1
    assert seen >= 2


def test_metrics_add_up_to_the_loaders_table() -> None:
    """Means per batch of each emission; those of the run are in the table."""
    logger = Logger()
    report = recorded(accumulating, logger, functions=False)
    sums: dict[str, list[float]] = {}
    for values, _ in logger.values:
        for key, value in values.items():
            match = re.fullmatch(r"profile/train/dl_train/time_(data|forward)_ms", key)
            if match:
                sums.setdefault(match[1], []).append(value)
    row = next(row for row in report.loaders if row.name == "train")
    # Two batches in each emission.
    assert sum(sums["data"]) / len(sums["data"]) == pytest.approx(row.data_ms, rel=1e-4)
    assert sum(sums["forward"]) / len(sums["forward"]) == pytest.approx(row.forward_ms, rel=1e-4)


def test_a_comparison_has_the_figures_of_both_reports(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "a.fprof")
    saved = fastprof.load(tmp_path / "a.fprof")
    assert saved.to_json() == report.to_json()
    pairs = json.loads(fastprof.compare(saved, saved).to_json())["pairs"]
    figures = [float(text) for text in re.findall(r"\d+\.\d+", json.dumps(pairs))]
    for row in report.steps.rows:
        if not row.name.startswith("("):
            assert any(figure == pytest.approx(row.mean_ms) for figure in figures)
