"""How late each rank is in the course of a job: figures and their picture."""

from __future__ import annotations

import json
import math
import re
from statistics import fmean, median

import pytest
from fastprof.ranks.build import rank_report
from fastprof.ranks.heat import COLUMNS, ROWS, rank_heat
from fastprof.ranks.judge import Series
from fastprof.ranks.row import rank_run
from fastprof.results.ranks import RankReport
from fastprof.results.result import as_result
from unit.test_ranks_steps import job, judged

FIRST = 3  # steps that are skipped


def late(rank, step):
    if rank == 3 and 60 <= step < 120:
        return 20.0
    return 9.0 if rank == 2 and step >= 150 else 0.0


@pytest.fixture(scope="module")
def made():
    return job(5, 240, data=late)


def test_a_cell_is_the_mean_lateness_of_a_rank_in_its_steps(made):
    heat = judged(made).heat
    assert heat.ranks == (0, 1, 2, 3, 4)
    assert (heat.firsts[0], heat.last) == (FIRST, FIRST + 239)
    assert heat.size == math.ceil(240 / COLUMNS)
    runs = [rank_run(snapshot, f"{i}.fprof") for i, snapshot in enumerate(made)]
    works = []  # own work by definition: the step without the engine's waits
    for run in runs:
        steps = run.steps
        works.append([w - e for w, e in zip(steps.wall, steps.autograd, strict=True)])
    for rank, row in enumerate(heat.late_ms):
        for i, ms in enumerate(row):
            steps = range(i * heat.size, min(240, (i + 1) * heat.size))
            others = [[w[s] for r, w in enumerate(works) if r != rank] for s in steps]
            wanted = fmean(works[rank][s] - median(of) for s, of in zip(steps, others, strict=True))
            assert ms == pytest.approx(wanted, abs=1e-6)


def test_late_ranks_stand_out_where_they_are_late(made):
    heat = judged(made).heat
    for first, *column in zip(heat.firsts, *heat.late_ms, strict=True):
        step = first - FIRST
        if 60 <= step < 118:
            assert max(range(5), key=column.__getitem__) == 3
        if step >= 150:
            assert max(range(5), key=column.__getitem__) == 2


def test_steps_that_a_rank_does_not_have_are_not_known():
    heat = rank_heat({0: Series([0, 1, 2, 3], [0.0] * 4), 4: Series([2, 3], [1.0, 3.0])})
    assert heat.late_ms == ((0.0,) * 4, (None, None, 1.0, 3.0))
    assert rank_heat({0: Series([0], [1.0]), 1: Series([], [])}) is None
    assert rank_heat({}) is None


def test_of_many_ranks_the_latest_ones_are_kept_whenever_they_were_late():
    ranks = {rank: Series([0, 1], [0.1, 0.1]) for rank in range(100)}
    ranks[97] = Series([0, 1], [5.0, -5.0])
    heat = rank_heat(ranks)
    assert len(heat.ranks) == ROWS
    assert heat.left_out == 100 - ROWS
    assert 97 in heat.ranks
    assert list(heat.ranks) == sorted(heat.ranks)


def test_the_page_has_a_cell_where_a_rank_is_late_and_says_which(made, tmp_path):
    path = tmp_path / "ranks.html"
    report = judged(made)
    report.save(path)
    page = path.read_text()
    picture = page[page.index("<svg") : page.index("</svg>")]
    width = float(re.search(r'viewBox="0 0 ([\d.]+) 1000"', picture)[1])
    rows = {2: set(), 3: set(), 0: set(), 1: set(), 4: set()}
    for x, y, wide in re.findall(r"M([\d.e+-]+) ([\d.]+)h([\d.]+)v", picture):
        assert float(x) + float(wide) <= width + 1e-3
        rows[round(float(y) / 200)].add((float(x), float(x) + float(wide)))
    assert min(x for x, _ in rows[3]) == pytest.approx(60, abs=3)
    assert max(x for _, x in rows[3]) == pytest.approx(120, abs=3)
    assert max(x for _, x in rows[2]) == pytest.approx(width)
    assert not rows[0]
    assert "heat-6" in picture
    assert "heat-none" not in picture
    data = json.loads(
        re.search(r'<figure.*?<script type="application/json">(.*?)</script>', page)[1]
    )
    assert len(data["places"]) == len(data["readings"]) == len(report.heat.firsts)
    assert re.match(r"Steps 66 to 68: rank 3 \d+\.\d ms", data["readings"][21])


def test_a_job_without_single_steps_has_a_page_without_the_picture(made, tmp_path):
    report = as_result(RankReport, rank_report([rank_run(made[0], "0.fprof")]))
    assert report.heat is None
    report.save(tmp_path / "one.html")
    assert "<svg" not in (tmp_path / "one.html").read_text()


def test_a_rank_without_steps_is_grey(made, tmp_path):
    from dataclasses import replace

    report = judged(made)
    row = (None, *report.heat.late_ms[0][1:])
    heat = replace(report.heat, late_ms=(row, *report.heat.late_ms[1:]))
    replace(report, heat=heat).save(tmp_path / "grey.html")
    page = (tmp_path / "grey.html").read_text()
    assert "heat-none" in page
    assert "Grey: no steps were recorded." in page
