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
from fastprof.errors import ExportError
from fastprof.render import html
from fastprof.render.html import run_phases as phases
from fastprof.render.html.data import page_data
from fastprof.render.html.flames import flame_columns
from fastprof.render.html.functions import function_columns
from fastprof.render.html.limits import LIMITS, PageLimits
from fastprof.render.html.run_phases import PhaseView
from fastprof.render.html.sources import Sources
from fastprof.render.html.strings import Strings
from fastprof.render.html.tables import part
from fastprof.report.from_stats import report_from_stats
from fastprof.report.model import Report
from fastprof.tables.cells import Table
from fastprof.tables.steps import kind_name
from hypothesis import given
from hypothesis import strategies as st
from unit.hostile import NAMES, snapshot_with
from unit.pages import (
    MARKUP,
    data_of,
    hostile,
    in_phases,
    large,
    part_of,
    report_of,
    text_of,
    training,
)
from unit.snapshots import MS, Node, c, py, tree

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
    graph = flame_columns([PhaseView("", report, LIMITS)], Strings())["graphs"][0]
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
    report = replace(report, view=replace(report.view, threads=(thread,)))
    limits = PageLimits(contexts=limit)
    columns = flame_columns([PhaseView("", report, limits)], Strings())
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
    assert [row[0] for row in bars[0]["rows"]] == [row.name for row in report.steps.split]
    assert [row[1] for row in bars[0]["rows"]] == [kind_name(r.name) for r in report.steps.split]
    assert bars[0]["missing"] == [f"{kind_name('lock')}: functions were not recorded"]
    assert sum(float(row[3]) for row in bars[0]["rows"]) == pytest.approx(100, abs=0.2)


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
    with pytest.raises(ExportError, match=re.escape("pip install 'fastprof[html]'")):
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


# ---- phases of the run ----


def test_the_page_opens_on_measured_steps_and_has_the_other_phases():
    data = page_data(report_of(in_phases()))
    assert data["phases"] == ["measured steps", "set-up", "validation", "whole run"]
    graphs = part_of(data, "flame")["graphs"]
    assert [graph["phase"] for graph in graphs] == [0, 1, 2, 3]
    assert [graph_total(graph) for graph in graphs] == [11 * MS, 3 * MS, 5 * MS, 19 * MS]
    tables = part_of(data, "functions")["phases"]
    cum = [dict(zip(names_in(data, f["name"]), f["cum"], strict=True)) for f in tables]
    assert [row["work"] for row in cum] == [10, 2, 4, 16]
    rows = [p["rows"] for c in data["chapters"] if c["id"] == "phases" for p in c["parts"]]
    assert [(row[0], row[4]) for row in rows[0]] == [
        ("set-up", ""), ("measured steps", ""), ("validation", "5.00"),
    ]  # fmt: skip


def test_in_the_whole_run_what_all_phases_called_is_one_context():
    data = page_data(report_of(in_phases()))
    graph = part_of(data, "flame")["graphs"][-1]
    assert (graph["up"], graph["weight"]) == ([0, 1, 1], [0, 3 * MS, 16 * MS])


def test_other_phases_are_cut_shorter(monkeypatch):
    monkeypatch.setattr(phases, "OTHER_PHASES", PageLimits(functions=1))
    data = page_data(report_of(in_phases()))
    tables = part_of(data, "functions")["phases"]
    assert [len(f["name"]) for f in tables] == [2, 1, 1, 1]
    graph = part_of(data, "flame")["graphs"][1]
    frames = part_of(data, "flame")["frames"]
    assert graph["frame"][-1] == -1
    assert data["strings"][frames["name"][graph["frame"][1]]] == "<module> prog.py"


def test_a_recording_without_phases_has_one_view():
    assert page_data(report_of(tree(Node(py("f"), 1, MS))))["phases"] == ["whole run"]


# ---- names, callers, folding ----


def names_in(data, numbers):
    return [data["strings"][number] for number in numbers]


def test_a_module_has_the_name_of_its_file():
    module = Node(py("<module>", 1, "/code/train.py"), 1, MS)
    data = page_data(report_of(tree(module)))
    assert names_in(data, part_of(data, "functions")["phases"][0]["name"]) == ["<module> train.py"]


def test_fastprof_in_fastprof_is_one_context():
    own = py("(fastprof)", 0, "~")
    inner = Node(own, 5, 2 * MS, [Node(own, 1, MS, [Node(py("work"), 1, 3 * MS)])])
    report = report_of(tree(Node(own, 1, MS, [inner])))
    data = page_data(report)
    graph = part_of(data, "flame")["graphs"][0]
    names = [report.functions[-1 - frame].name for frame in graph["frame"][1:]]
    assert names == ["(fastprof)", "work"]
    assert (graph["weight"], graph["calls"]) == ([0, 4 * MS, 3 * MS], [0, 1, 1])


def test_functions_of_the_program_are_told_from_those_of_libraries():
    library = py("go", 1, "/env/lib/python3.12/site-packages/torch/nn.py")
    report = report_of(tree(Node(py("main"), 1, 3, [Node(library, 1, 2, [Node(c("sum"), 1, 1)])])))
    columns = function_columns(report.functions, Strings())
    assert [report.functions[i].name for i in columns["users"]] == ["main"]


def test_calls_from_outside_of_all_functions_are_counted():
    work = Node(py("work"), 3, MS)
    report = report_of(tree(work, Node(py("main"), 1, MS, [Node(py("work"), 2, MS)])))
    columns = function_columns(report.functions, Strings())
    names = [row.name for row in report.functions]
    top = {names[i]: calls for i, calls in columns["edges"]["top"]}
    assert top == {"work": 3, "main": 1}


@pytest.mark.parametrize("edges", [1, 3, 6])
def test_the_main_caller_of_a_function_is_left_out_last(edges):
    nodes = [
        Node(py(f"main {i}"), 1, 1, [Node(py(f"work {n}"), 1, 10 + i) for n in range(3)])
        for i in range(2)
    ]
    report = report_of(tree(*nodes))
    columns = function_columns(report.functions, Strings(), PageLimits(edges=edges))
    count = columns["edges"]["count"]
    called = [n for n, row in zip(count, report.functions, strict=True) if row.callers]
    assert sum(called) == edges
    assert sum(n > 0 for n in called) == min(3, edges)


# ---- steps ----


def with_steps(report, wall):
    series = replace(report.steps.series, wall_ms=tuple(wall), names={}, gc_ms=())
    return replace(report, steps=replace(report.steps, series=series))


@pytest.mark.parametrize(
    ("wall", "clipped"),
    [
        ([15.0] * 119 + [291.0], 1),
        ([15.0 + i % 5 for i in range(1000)] + [300.0] * 9 + [900.0], 10),
        ([15.0] * 95 + [291.0] * 5, 0),  # a twentieth of all steps is no outlier
        ([15.0, 16.0, 29.0], 0),
        ([15.0] * 9 + [90.0], 1),
        ([15.0, 200.0], 0),
        ([0.0] * 20, 0),
    ],
)
def test_a_few_long_steps_do_not_flatten_the_charts(report, wall, clipped):
    made = part_of(page_data(with_steps(report, wall)), "steps")
    assert made["clipped"] == clipped
    if not clipped:
        assert made["top"] is made["largest"] is None
        return
    assert made["largest"] == max(wall)
    assert sum(ms > made["top"] for ms in made["wall"]) == clipped
    assert made["top"] < 2 * sorted(wall)[-1 - clipped]


def test_a_legend_has_no_rows_of_nothing(report):
    first, *others = report.steps.split
    split = (replace(first, name="gc", total_ns=100, share=0.0001), first, *others)
    data = page_data(replace(report, steps=replace(report.steps, split=split)))
    bars = [p for c in data["chapters"] for p in c["parts"] if p["kind"] == "bar"]
    assert "gc" not in [row[0] for row in bars[0]["rows"]]
    assert "0.0" not in [row[3] for bar in bars for row in bar["rows"]]


def test_without_a_gpu_the_legend_has_no_wait_for_one(report):
    missing = ("gpu_wait: there is no GPU", "io: not asked for")
    report = replace(report, gpu=None, steps=replace(report.steps, split_missing=missing))
    data = page_data(report)
    bars = [p for c in data["chapters"] for p in c["parts"] if p["kind"] == "bar"]
    assert bars[0]["missing"] == [f"{kind_name('io')}: not asked for"]


# ---- source lines ----

CODE = """\
import functools

@functools.cache
def work(n):
    if n < 2:\t# \u202e </script>
        return n

    return work(n - 1)


double = lambda x: 2 * x
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "prog.py"
    path.write_text(CODE, encoding="utf-8")
    return path


def rows_of(*keys):
    return report_of(tree(*(Node(key, 1, MS) for key in keys))).functions


def after(path):
    return path.stat().st_mtime_ns


def test_the_lines_of_a_function_are_those_of_its_file(code):
    sources = Sources(after(code))
    rows = rows_of(py("work", 3, str(code)), py("<lambda>", 11, str(code)), c("sum"))
    assert sources.of(rows) == [(0, 0), (1, 1)]
    (first, work), (at, double) = sources.blocks
    assert (first, at) == (3, 11)
    assert work.splitlines() == [
        "@functools.cache", "def work(n):", "    if n < 2:   # \\u202e </script>",
        "        return n", "", "    return work(n - 1)",
    ]  # fmt: skip
    assert double == "double = lambda x: 2 * x"


def test_the_same_function_in_another_phase_is_not_written_again(code):
    sources = Sources(after(code))
    rows = rows_of(py("work", 3, str(code)))
    assert sources.of(rows) == sources.of(rows) == [(0, 0)]
    assert len(sources.blocks) == 1


def test_p3_a_file_is_read_only_if_it_is_that_function_s_of_the_time_of_the_run(code, tmp_path):
    secret = tmp_path / "id_rsa"
    secret.write_text(CODE, encoding="utf-8")
    folder = tmp_path / "folder.py"
    folder.mkdir()
    wrong = rows_of(
        py("work", 3, str(secret)),
        py("work", 8, str(code)),
        py("other", 3, str(code)),
        py("work", 3, "prog.py"),
        py("work", 3, str(tmp_path / "gone.py")),
        py("work", 3, "/a\0b.py"),
        py("work", 3, str(folder)),
        py("work", 300, str(code)),
    )
    assert Sources(after(code)).of(wrong) == []
    rows = rows_of(py("work", 3, str(code)))
    assert Sources(after(code) - 1).of(rows) == []
    assert Sources(None).of(rows) == []


def test_source_lines_have_bounds(tmp_path):
    path = tmp_path / "prog.py"
    path.write_text("def work():\n" + "    pass\n" * 500, encoding="utf-8")
    sources = Sources(after(path), PageLimits(source_lines=10))
    assert sources.of(rows_of(py("work", 1, str(path)))) == [(0, 0)]
    assert len(sources.blocks[0][1].splitlines()) == 10
    small = Sources(after(path), PageLimits(source_characters=100))
    assert small.of(rows_of(py("work", 1, str(path)))) == []


def test_the_page_has_the_source_of_what_was_just_recorded(code):
    snapshot = tree(Node(py("work", 3, str(code)), 1, MS))
    made = report_of(replace(snapshot, meta={"recorded_until_ns": after(code)}))
    part = part_of(data_of(text_of(made)), "functions")
    assert part["phases"][0]["source"] == [[0, 0]]
    assert part["sources"][0][0] == 3
