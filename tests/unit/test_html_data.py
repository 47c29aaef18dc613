"""HTML reports without a browser: what is in the file, and that it adds up."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import sys
from dataclasses import replace

import pytest
from fastprof.cli import main
from fastprof.errors import MissingExtraError
from fastprof.exporters import html
from fastprof.exporters.cells import Table
from fastprof.exporters.html.data import page_data
from fastprof.exporters.html.flames import flame_columns
from fastprof.exporters.html.functions import function_columns
from fastprof.exporters.html.limits import LIMITS, PageLimits
from fastprof.exporters.html.strings import Strings
from fastprof.exporters.html.tables import part
from fastprof.report.from_stats import report_from_stats
from fastprof.report.model import Report
from hypothesis import given
from hypothesis import strategies as st
from unit.hostile import NAMES, snapshot_with
from unit.pages import MARKUP, data_of, hostile, large, part_of, report_of, text_of, training
from unit.snapshots import MS, Node, py, tree

pytest.importorskip("jinja2", reason="fastprof[html] is not installed")


@pytest.fixture(scope="module")
def report() -> Report:
    return report_of(training())


@pytest.fixture(scope="module")
def page(report) -> str:
    return text_of(report)


def graph_total(graph, i=0):
    """The sum of a row's own weight and of all rows inside it, by the rules of ``up``."""
    above = [n - up if up else -1 for n, up in enumerate(graph["up"])]
    total = list(graph["weight"])
    for n in range(len(total) - 1, 0, -1):
        total[above[n]] += total[n]
    return total[i]


def scripts(page):
    return re.findall(r"<script>(.*?)</script>", page, re.S)


def policy(page):
    return re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")


def test_p3_the_policy_allows_nothing_but_the_scripts_written_here(page):
    (script,) = scripts(page)
    packed = re.search(r'id="library">([^<]*)</script>', page)[1]
    library = gzip.decompress(base64.b64decode(packed)) if packed else None
    allowed = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"
        for text in (script.encode(), library)
        if text
    ]
    assert policy(page).split("; ") == [
        "default-src 'none'",
        "script-src " + " ".join(allowed),
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
        *(["img-src data:"] if library else []),
    ]


def test_p6_the_page_names_no_other_place(page):
    own = re.sub(r'id="library">[^<]*<', "", page)
    assert re.findall(r"https?:|\bsrc=|url\(|@import|<link|<iframe|fetch\(|XMLHttp", own) == []


SHORT = [name for name in NAMES.values() if len(name) < 1000]


@pytest.mark.parametrize("name", [*SHORT, *MARKUP], ids=lambda name: ascii(name)[:30])
def test_p3_names_begin_no_markup(name, monkeypatch):
    monkeypatch.setattr(html, "load_library", lambda: None)
    page = text_of(report_of(snapshot_with(name)))
    text = page.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(text)
    assert text.isascii()
    assert text == html.safe_json(data_of(page))
    # One of each kind: the data, the library, the script.
    assert page.lower().count("<script") == page.lower().count("</script") == 3
    assert scripts(page) == scripts(text_of(report_of(training())))


def test_p3_a_megabyte_of_a_name_is_cut():
    data = page_data(report_of(snapshot_with("x" * 1_000_000)))
    assert len(json.dumps(data)) < 60_000


def test_the_flame_graph_adds_up_per_thread(report):
    graphs = part_of(page_data(report), "flame")["graphs"]
    times = [g for g in graphs if g["kind"] == "time"]
    assert [graph_total(g) for g in times] == [round(t.total_ms * MS) for t in report.threads]
    by_gpu = [g for g in graphs if g["kind"] == "gpu"]
    assert sum(map(graph_total, by_gpu)) == report.gpu.totals.gpu_ns == 40 * MS


def test_a_frame_of_a_function_is_its_row_in_the_function_table(report):
    data = page_data(report)
    graph = part_of(data, "flame")["graphs"][0]
    rows = [report.functions[-1 - frame] for frame in graph["frame"] if frame < 0]
    calls = [n for n, frame in zip(graph["calls"], graph["frame"], strict=True) if frame < 0]
    assert [r.name for r in rows][:2] == ["train", "forward"]
    assert calls == [r.calls for r in rows]


def test_what_is_largest_is_drawn_first():
    snapshot = tree(Node(py("small"), 1, 1), Node(py("big"), 1, 3), Node(py("none"), 1, 0))
    report = report_of(snapshot)
    graph = flame_columns(report, Strings())["graphs"][0]
    names = [report.functions[-1 - frame].name for frame in graph["frame"][1:]]
    assert names == ["big", "small"]


@st.composite
def trees(draw):
    """Trees in which parents stand anywhere before their children."""
    weights = draw(st.lists(st.integers(0, 20), min_size=1, max_size=40))
    parent = [-1, *(draw(st.integers(0, i)) for i in range(len(weights) - 1))]
    return parent, weights


@given(trees(), st.integers(1, 50))
def test_the_smallest_contexts_become_one_and_nothing_is_lost(shape, limit):
    parent, weights = shape
    report = report_of(large(3, len(parent)))
    nodes = replace(report.snapshot.threads[0].nodes, parent=tuple(parent), self_ns=tuple(weights))
    thread = replace(report.snapshot.threads[0], nodes=nodes)
    report = replace(report, snapshot=replace(report.snapshot, threads=(thread,)))
    columns = flame_columns(report, Strings(), PageLimits(contexts=limit))
    if columns is None:
        assert sum(weights) == 0
        return
    (graph,) = columns["graphs"]
    assert graph_total(graph) == sum(weights)
    drawn = [frame for frame in graph["frame"] if frame != 0]
    assert len(drawn) <= max(1, limit)
    small = [n for frame, n in zip(graph["frame"], graph["calls"], strict=True) if frame == 0]
    assert sum(small) == graph["left_out"]


def test_callers_and_callees_are_those_of_the_report(report):
    columns = function_columns(report.functions, Strings())
    edges = columns["edges"]
    callees = [i for i, count in enumerate(edges["count"]) for _ in range(count)]
    found = {
        (report.functions[a].name, report.functions[b].name, calls)
        for a, b, calls in zip(edges["caller"], callees, edges["calls"], strict=True)
    }
    assert found == {
        ("train", "load", 20),
        ("train", "forward", 20),
        ("forward", "inner", 400),
        ("inner", "<built-in method builtins.sum>", 800),
    }


def test_functions_and_edges_beyond_the_limits_are_counted():
    report = report_of(large(30, 300))
    columns = function_columns(report.functions, Strings(), PageLimits(functions=10, edges=5))
    assert (columns["total"], len(columns["name"])) == (30, 10)
    edges = columns["edges"]
    assert sum(edges["count"]) == len(edges["caller"]) == 5
    assert edges["left_out"] > 0
    assert columns["self_total"] == pytest.approx(sum(r.self_ms for r in report.functions), abs=1)


def test_rows_of_a_table_beyond_the_limit_are_counted():
    rows = tuple((f"row {i}", str(i)) for i in range(LIMITS.rows + 1))
    made = part(Table("Things", ("name", "n"), rows), [f"name {i}" for i in range(len(rows))])
    assert made["title"] == "Things (the first 500 of 501)"
    assert made["rows"][-1] == ["name 499", "499"]
    assert part(Table("Things", ("name", "n"), rows[1:]))["title"] == "Things"


def test_what_is_not_known_is_not_available():
    report = report_of(tree(Node(py("f"), 1, MS)))
    tiles = {name: value for name, value, _ in page_data(report)["tiles"]}
    assert tiles.pop("recorded") == "1.0 ms"
    assert tiles == dict.fromkeys(("GPU busy", "GPU memory", "profiler"), "n/a")


def test_chapters_without_data_are_left_out():
    data = page_data(report_of(tree(Node(py("f"), 1, MS))))
    titles = [chapter["id"] for chapter in data["chapters"]]
    assert titles == ["findings", "flame", "functions", "about"]


def test_a_report_of_a_stats_file_has_functions_and_no_flame_graph():
    stats = {("a.py", 1, "f"): (1, 1, 0.5, 0.5, {})}
    data = page_data(report_from_stats(stats))
    titles = [chapter["id"] for chapter in data["chapters"]]
    assert "functions" in titles
    assert "flame" not in titles


def test_the_series_has_each_step_and_what_no_section_covers(report):
    part = part_of(page_data(report), "steps")
    assert part["first"] == 3
    assert [s["name"] for s in part["sections"]] == ["data", "forward", "(unaccounted)"]
    sums = [sum(values) for values in zip(*(s["ms"] for s in part["sections"]), strict=True)]
    assert sums == pytest.approx(part["wall"])


def test_the_split_is_the_report_s_and_says_what_is_missing(report):
    data = page_data(report)
    bars = [p for c in data["chapters"] for p in c["parts"] if p["kind"] == "bar"]
    assert [bar["of"] for bar in bars] == ["split", "sections"]
    assert [row[0] for row in bars[0]["rows"]] == [row.name for row in report.steps.split]
    assert bars[0]["missing"] == ["lock: functions were not recorded"]
    assert sum(float(row[2]) for row in bars[0]["rows"]) == pytest.approx(100, abs=0.2)


def test_sections_beyond_those_a_chart_can_show_are_one(report):
    names = {f"s{i}": (float(i),) * 20 for i in range(1, 13)}
    series = replace(report.steps.series, names=names, wall_ms=(100.0,) * 20)
    many = replace(report, steps=replace(report.steps, series=series))
    part = part_of(page_data(many), "steps")
    assert [s["name"] for s in part["sections"]] == [
        *(f"s{i}" for i in range(4, 13)), "(3 other sections)", "(unaccounted)",
    ]  # fmt: skip
    assert [s["ms"][0] for s in part["sections"]][-2:] == [6, 22]


def test_the_page_is_what_save_writes(report, tmp_path):
    report.save(tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == text_of(report)


def test_the_command_writes_a_page(report, tmp_path, capsys):
    report.save(tmp_path / "run.fprof")
    out = tmp_path / "run.html"
    assert main(["report", str(tmp_path / "run.fprof"), "-o", str(out)]) == 0
    assert data_of(out.read_text(encoding="utf-8"))["chapters"]


def test_without_jinja2_the_error_names_the_extra(report, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'fastprof[html]'")):
        report.save(tmp_path / "run.html")
    assert list(tmp_path.iterdir()) == []
    report.save(tmp_path / "run.fprof")
    run = [str(tmp_path / "run.fprof"), "-o", str(tmp_path / "run.html")]
    assert main(["report", *run]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_without_plotly_the_page_is_written_all_the_same(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    page = text_of(report)
    assert 'id="library"></script>' in page
    assert policy(page).count("sha256-") == 1


def test_the_same_report_gives_the_same_page(page):
    assert text_of(report_of(training())) == page


def test_every_hostile_name_is_in_the_page_for_display():
    strings = data_of(text_of(report_of(hostile())))["strings"]
    assert set(MARKUP) <= set(strings)
    assert all(text.isprintable() for text in strings)
