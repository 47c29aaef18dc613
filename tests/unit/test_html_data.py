"""HTML reports without a browser: the file's content, and its sums."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import tracemalloc
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest
from fastprof import fast
from fastprof.cli import main
from fastprof.render.html import charts, write
from fastprof.render.html import run_phases as phases
from fastprof.render.html.chapters import chapters, tiles
from fastprof.render.html.charts import figure
from fastprof.render.html.data import page_data
from fastprof.render.html.flames import flame_columns
from fastprof.render.html.functions import function_columns
from fastprof.render.html.limits import LIMITS, PageLimits
from fastprof.render.html.markup import prose, safe_json, table
from fastprof.render.html.run_phases import PhaseView
from fastprof.render.html.sources import Sources
from fastprof.render.html.steps import memory_chart, step_charts
from fastprof.render.html.strings import Strings
from fastprof.render.html.tables import kernel_tables, limited
from fastprof.report.from_stats import report_from_stats
from fastprof.report.functions import FunctionRows
from fastprof.results.report import Report, build_report
from fastprof.snapshot import Key, NodeTable, Snapshot, ThreadTree
from fastprof.snapshot.gpu import HOW_UNKNOWN
from fastprof.snapshot.lines import LineSamples
from fastprof.snapshot.memory import MemorySample
from fastprof.snapshot.run_phases import RUN_PHASES, PhaseTime
from fastprof.tables.cells import Table, number
from fastprof.tables.report import calls, place
from fastprof.tables.steps import kind_name
from hypothesis import given
from hypothesis import strategies as st
from unit.hostile import NAMES, snapshot_with
from unit.pages import (
    MARKUP,
    chapters_of,
    data_of,
    hostile,
    in_phases,
    large,
    report_of,
    text_of,
    training,
)
from unit.snapshots import MIB, MS, Node, activity, c, gpu, kernel, memory, py, tree
from unit.test_in_run import simulated


@pytest.fixture(scope="module")
def report() -> Report:
    return report_of(training())


@pytest.fixture(scope="module")
def page(report) -> str:
    return text_of(report)


def graph_total(graph, i=0):
    """Return the sum of a row's own weight and of all rows inside it, by ``up``."""
    above = [n - up if up else -1 for n, up in enumerate(graph["up"])]
    total = list(graph["weight"])
    for n in range(len(total) - 1, 0, -1):
        total[above[n]] += total[n]
    return total[i]


def scripts(page):
    return re.findall(r"<script>(.*?)</script>", page, re.S)


def test_p3_the_policy_allows_nothing_but_the_script_written_here(page):
    (script,) = scripts(page)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert unescape(policy).split("; ") == [
        "default-src 'none'", f"script-src 'sha256-{digest}'", "style-src 'unsafe-inline'",
        "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip


def test_p6_the_page_names_no_other_place(page):
    assert re.findall(r"https?:|\bsrc=|url\(|@import|<link|<iframe|fetch\(|XMLHttp", page) == []


class Tags(HTMLParser):
    """The elements of a page and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.seen = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen |= {tag, *(f"{tag} {name}" for name, _ in attrs)}


SHORT = [name for name in NAMES.values() if len(name) < 1000]


@pytest.mark.parametrize("name", [*SHORT, *MARKUP], ids=lambda name: ascii(name)[:30])
def test_p3_names_begin_no_markup(name):
    page = text_of(report_of(snapshot_with(name)))
    plain = text_of(report_of(snapshot_with("name")))
    assert page.isascii()
    assert Tags(page).seen == Tags(plain).seen
    for text in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S):
        assert not set("<>&") & set(text)
        assert text == safe_json(json.loads(text))
    assert page.lower().count("<script") == page.lower().count("</script")
    assert page.count("<script") == plain.count("<script")
    assert scripts(page) == scripts(plain)


def test_p3_a_megabyte_of_a_name_is_cut():
    name, short = (text_of(report_of(snapshot_with("x" * n))) for n in (1_000_000, 1))
    assert len(name) - len(short) < 60_000


def test_the_flame_graph_adds_up_per_thread(report):
    graphs = page_data(report)["flame"]["graphs"]
    times = [g for g in graphs if g["kind"] == "time"]
    assert [graph_total(g) for g in times] == [round(t.total_ms * MS) for t in report.threads]
    by_gpu = [g for g in graphs if g["kind"] == "gpu"]
    assert sum(map(graph_total, by_gpu)) == report.gpu.totals.gpu_ns == 40 * MS


def test_a_frame_of_a_function_is_its_row_in_the_function_table(report):
    data = page_data(report)
    graph = data["flame"]["graphs"][0]
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
    """Draw trees in which parents stand anywhere before their children."""
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
    made = limited(Table("Things", ("name", "n"), rows), [f"name {i}" for i in range(len(rows))])
    assert made.title == "Things (the first 500 of 501)"
    assert made.rows[-1] == ("name 499", "499")
    assert limited(Table("Things", ("name", "n"), rows[1:])).title == "Things"
    summed = limited(Table("Things", ("name", "n"), rows, total=True), ["a"])
    assert (summed.title, summed.rows[0], summed.rows[-1]) == ("Things", ("a", "0"), rows[-1])


def test_what_is_not_known_is_not_available():
    report = report_of(tree(Node(py("f"), 1, MS)))
    found = dict(re.findall("<dt>([^<]*)</dt><dd[^>]*>([^<]*)</dd>", tiles(report)))
    assert found.pop("recorded") == "1.00 ms"
    # A machine without a GPU has no GPU figures.
    assert found == {"profiler": "n/a"}


def test_the_page_is_named_after_the_program():
    made = replace(tree(Node(py("f"), 1, MS)), meta={"command": "train.py --name <b>"})
    stream = io.StringIO()
    write(build_report(made), stream)
    assert stream.getvalue().count("train.py --name &lt;b&gt;: fastprof report</") == 2


def test_chapters_without_data_are_left_out():
    found = chapters_of(report_of(tree(Node(py("f"), 1, MS))))
    assert list(found) == ["findings", "flame", "functions", "about"]


def test_a_report_of_a_stats_file_has_functions_and_no_flame_graph():
    stats = {("a.py", 1, "f"): (1, 1, 0.5, 0.5, {})}
    found = chapters_of(report_from_stats(stats))
    assert "functions" in found
    assert "flame" not in found


def test_the_chart_has_each_step_and_what_no_section_covers(report):
    timeline, _, cut = step_charts(report)
    assert (list(timeline.places), cut) == (list(range(3, 23)), "")
    assert [line.name for line in timeline.lines] == ["data", "forward", "(unaccounted)"]
    sums = [sum(values) for values in zip(*(line.values for line in timeline.lines), strict=True)]
    assert sums == pytest.approx(report.steps.series.wall_ms)
    assert timeline.readings[0] == (
        "Step 3, 13.0 ms: data 5.00, forward 7.00, (unaccounted) 1.00; garbage collection 1.00 ms"
    )


def test_the_histogram_counts_each_step_that_is_shown(report):
    _, histogram, _ = step_charts(with_steps(report, [15.0] * 100 + [16.0] * 19 + [291.0]))
    assert sum(histogram.lines[0].values) == 119
    assert histogram.readings[0].endswith(": 100 steps")


@pytest.mark.parametrize(
    ("wall", "counts", "first"),
    [
        ([300.0], [0, 1, 0], "255 to 285 ms: 0 steps"),
        ([15.0] * 3, [0, 3, 0], "12.8 to 14.2 ms: 0 steps"),
        ([0.0] * 3, [3, 0, 0], "0 to 0.100 ms: 3 steps"),
    ],
)
def test_steps_that_took_equally_long_are_one_bar_with_its_marks(report, wall, counts, first):
    _, histogram, _ = step_charts(with_steps(report, wall))
    assert list(histogram.lines[0].values) == counts
    assert histogram.readings[0] == first
    assert [name for name, _ in histogram.marks] == [
        f"{name} {number(wall[0])}" for name in ("p50", "p95")
    ]
    places = re.findall(r"(?:left|right):(-?[\d.]+)%", figure(histogram))
    assert len(places) >= 2
    assert all(0 <= float(place) <= 100 for place in places)


def test_the_percentiles_of_a_chart_are_those_of_its_steps():
    """A run has more steps than a report has one by one."""
    made = training()
    steps = replace(made.steps, count=10_003, recent_ns=made.steps.recent_ns[:5])
    report = with_steps(report_of(replace(made, steps=steps)), [20.0] * 90 + [30.0] * 10)
    assert report.steps.p50_ms < 15
    timeline, histogram, _ = step_charts(report)
    assert timeline.label == "100 steps from 3 on: median 20.0 ms, p95 30.0 ms."
    assert [ms for _, ms in histogram.marks] == [20, 30]


def test_a_sample_of_memory_is_after_a_number_of_steps():
    """The last step of ten has number 9 in the other charts."""
    samples = (MemorySample(0, 0, 0, 0, 0), MemorySample(10, MIB, 2 * MIB, MIB, 2 * MIB))
    made = report_of(replace(training(), memory=memory(samples=samples, steps=2)))
    chart = memory_chart(made.memory)
    assert chart.units == ("steps done", "MiB")
    assert chart.readings == [
        "After 0 steps: allocated 0 MiB, reserved 0 MiB, peak reserved 0 MiB",
        "After 10 steps: allocated 1.00 MiB, reserved 2.00 MiB, peak reserved 2.00 MiB",
    ]


def names_of(markup):
    return [unescape(text) for text in re.findall('class="what">([^<]*)<', markup)]


def bars_of(report):
    return chapters_of(report)["steps"].split("<figure")[1:3]


def test_the_split_is_the_report_s_and_says_what_is_missing(report):
    split, _ = bars_of(report)
    assert names_of(split)[: len(report.steps.split)] == [
        kind_name(row.name) for row in report.steps.split
    ]
    assert f"Not known: {kind_name('lock')}: functions were not recorded" in split
    shares = re.findall(r'class="figure">([\d.]+) %<', split)
    assert sum(map(float, shares)) == pytest.approx(100, abs=0.2)


def test_sections_beyond_those_a_chart_can_show_are_one(report):
    names = {f"s{i}": (float(i),) * 20 for i in range(1, 13)}
    series = replace(report.steps.series, names=names, wall_ms=(100.0,) * 20)
    many = replace(report, steps=replace(report.steps, series=series))
    lines = step_charts(many)[0].lines
    assert [line.name for line in lines] == [
        *(f"s{i}" for i in range(4, 13)), "(3 other sections)", "(unaccounted)",
    ]  # fmt: skip
    assert [line.values[0] for line in lines][-2:] == [6, 22]


def test_the_page_is_what_save_writes(report, tmp_path):
    report.save(tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == text_of(report)


def test_the_command_writes_a_page(report, tmp_path, capsys):
    report.save(tmp_path / "run.fprof")
    out = tmp_path / "run.html"
    assert main(["report", str(tmp_path / "run.fprof"), "-o", str(out)]) == 0
    assert data_of(out.read_text(encoding="utf-8"))["functions"]


def test_the_same_report_gives_the_same_page(page):
    assert text_of(report_of(training())) == page


def test_every_hostile_name_is_in_the_page_for_display():
    page = text_of(report_of(hostile()))
    strings = data_of(page)["strings"]
    assert set(MARKUP) <= set(strings)
    assert all(text.isprintable() for text in strings)
    assert set(MARKUP) <= {unescape(t) for t in re.findall("<(?:th|span)[^>]*>([^<]*)<", page)}


# ---- phases of the run ----


def test_the_page_opens_on_measured_steps_and_has_the_other_phases():
    data = page_data(report_of(in_phases()))
    assert data["phases"] == ["measured steps", "set-up", "validation", "whole run"]
    graphs = data["flame"]["graphs"]
    assert [graph["phase"] for graph in graphs] == [0, 1, 2, 3]
    assert [graph_total(graph) for graph in graphs] == [11 * MS, 3 * MS, 5 * MS, 19 * MS]
    tables = data["functions"]["phases"]
    cum = [dict(zip(names_in(data, f["name"]), f["cum"], strict=True)) for f in tables]
    assert [row["work"] for row in cum] == [10, 2, 4, 16]
    table = chapters_of(report_of(in_phases()))["phases"]
    body = table.split("<tbody>")[1]
    rows = re.findall(r"<tr><th[^>]*>([^<]*)</th>.*?<td[^>]*>([^<]*)</td></tr>", body)
    assert rows == [("set-up", ""), ("measured steps", ""), ("validation", "5.00")]


def test_in_the_whole_run_what_all_phases_called_is_one_context():
    data = page_data(report_of(in_phases()))
    graph = data["flame"]["graphs"][-1]
    assert (graph["up"], graph["weight"]) == ([0, 1, 1], [0, 3 * MS, 16 * MS])


def test_other_phases_are_cut_shorter(monkeypatch):
    monkeypatch.setattr(phases, "OTHER_PHASES", PageLimits(functions=1))
    data = page_data(report_of(in_phases()))
    tables = data["functions"]["phases"]
    assert [len(f["name"]) for f in tables] == [2, 1, 1, 1]
    graph = data["flame"]["graphs"][1]
    frames = data["flame"]["frames"]
    assert graph["frame"][-1] == -1
    assert data["strings"][frames["name"][graph["frame"][1]]] == "<module> prog.py"


def test_a_recording_without_phases_has_one_view():
    assert page_data(report_of(tree(Node(py("f"), 1, MS))))["phases"] == ["whole run"]


@pytest.mark.parametrize("slower", [0.0, 0.4])
@pytest.mark.parametrize("with_gpu", [False, True])
def test_the_other_phases_have_the_times_of_their_own_reports(slower, with_gpu):
    """The steps measured the hook's cost, and its bytecode only that of functions in steps."""
    snapshot = in_validation(simulated(1.7, slower))
    if with_gpu:
        snapshot = replace(snapshot, gpu=gpu(activity(0, MS, (0, 1)), kernels=(kernel("k", MS),)))
    made = build_report(snapshot)
    views = {view.report.phase: view.report.functions for view in phases.phase_views(made)}
    assert views == {phase: made.in_phase(phase).functions for phase in views}
    assert set(views) == {"steps", "validation", "all"}
    graphs = {g["phase"]: g for g in page_data(made)["flame"]["graphs"] if g["kind"] == "time"}
    total = made.in_phase("validation").threads[0].total_ms
    assert graph_total(graphs[1]) == round(total * MS)


def test_a_kernel_of_the_page_has_its_full_name_below_the_short_one():
    full = "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int)"
    kernels = (kernel(full, 2 * MS), kernel("nvjet_sm90", MS))
    run = tree(Node(py("f")), gpu=gpu(activity(0, 2 * MS), activity(1, MS), kernels=kernels))
    (made,) = kernel_tables(report_of(run))
    page = str(table(made))
    details = "<details><summary>elementwise add&lt;float&gt;</summary>void at::native::vectorized"
    assert details in page
    assert page.count("<details>") == 1
    assert '<th scope="row" class="text" title="nvjet_sm90">nvjet_sm90</th>' in page


def test_kernels_of_the_flame_graph_have_short_names():
    full = "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int)"
    run = tree(Node(py("f")), gpu=gpu(activity(0, MS, (0, 1)), kernels=(kernel(full, MS),)))
    data = page_data(report_of(run))
    assert "elementwise add<float>" in names_in(data, data["flame"]["frames"]["name"])


def test_a_page_whose_sections_have_no_gpu_time_says_so():
    unseen = activity(-8, 5 * MS, how=HOW_UNKNOWN)
    chapter = chapters_of(report_of(tree(Node(py("f")), gpu=gpu(unseen))))["gpu"]
    assert "<p>GPU: no launch was seen for 100 % of the GPU&#x27;s time" in chapter


def in_validation(snapshot):
    """Return the run with a validation that calls a function of the steps and another one."""
    (thread,) = snapshot.threads
    nodes = thread.nodes
    n, key = len(nodes), len(snapshot.keys)
    work = next(i for i, k in enumerate(snapshot.keys) if k.name == "work_forward")
    grown = replace(
        nodes,
        parent=(*nodes.parent, 0, n, n), key=(*nodes.key, key, work, key + 1),
        calls=(*nodes.calls, 1, 100_000, 100_000), resumes=(*nodes.resumes, 0, 0, 0),
        self_ns=(*nodes.self_ns, 30 * MS, 20 * MS, 20 * MS),
        phase=((0,) * n + (RUN_PHASES.index("validation"),) * 3),
    )  # fmt: skip
    return replace(
        snapshot,
        keys=(*snapshot.keys, py("validate", 20), py("score", 30)),
        threads=(replace(thread, nodes=grown),),
        phases=(PhaseTime("steps", 1, 1), PhaseTime("validation", 1, 1)),
    )


def test_functions_in_worker_processes_have_one_graph():
    made = in_phases()
    data = page_data(report_of(replace(made, worker_threads=made.threads)))
    assert [g["phase"] for g in data["flame"]["graphs"] if g["kind"] == "workers"] == [0]


# ---- names, callers, folding ----


def names_in(data, numbers):
    return [data["strings"][number] for number in numbers]


def test_a_module_has_the_name_of_its_file():
    module = Node(py("<module>", 1, "/code/train.py"), 1, MS)
    data = page_data(report_of(tree(module)))
    assert names_in(data, data["functions"]["phases"][0]["name"]) == ["<module> train.py"]


def test_fastprof_in_fastprof_is_one_context():
    own = py("(fastprof)", 0, "~")
    inner = Node(own, 5, 2 * MS, [Node(own, 1, MS, [Node(py("work"), 1, 3 * MS)])])
    report = report_of(tree(Node(own, 1, MS, [inner])))
    data = page_data(report)
    graph = data["flame"]["graphs"][0]
    names = [report.functions[-1 - frame].name for frame in graph["frame"][1:]]
    assert names == ["(fastprof)", "work"]
    assert (graph["weight"], graph["calls"]) == ([0, 4 * MS, 3 * MS], [0, 1, 1])
    # Its calls of itself are no recursion: they are those of many functions.
    (row,) = [row for row in report.functions if row.name == "(fastprof)"]
    assert (row.calls, row.primitive_calls, calls(row), place(row)) == (7, 1, "1", "")
    columns = function_columns(report.functions, Strings())
    assert (dict(zip([r.name for r in report.functions], columns["calls"], strict=True)),
            columns["recursive"]) == ({"(fastprof)": 1, "work": 1}, [])  # fmt: skip


def test_functions_of_the_program_are_distinguished_from_those_of_libraries():
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
    timeline, histogram, said = step_charts(with_steps(report, wall))
    assert sum(ms > timeline.top for ms in wall) == clipped
    assert sum(histogram.lines[0].values) == len(wall) - clipped
    assert bool(said) == bool(clipped)
    if clipped:
        assert timeline.top < 2 * sorted(wall)[-1 - clipped]


def test_a_legend_has_no_rows_of_nothing(report):
    first, *others = report.steps.split
    split = (replace(first, name="gc", total_ns=100, share=0.0001), first, *others)
    bars = bars_of(replace(report, steps=replace(report.steps, split=split)))
    assert kind_name("gc") not in names_of(bars[0])
    assert ">0.0 %<" not in "".join(bars)


def test_without_a_gpu_the_legend_has_no_wait_for_one(report):
    missing = ("gpu_wait: there is no GPU", "io: not asked for")
    report = replace(report, gpu=None, steps=replace(report.steps, split_missing=missing))
    assert re.findall("Not known: ([^<]*)<", bars_of(report)[0]) == [
        f"{kind_name('io')}: not asked for"
    ]


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
    """A recording that knows a file."""
    return Snapshot({}, 0, sources={str(path): hashlib.sha256(path.read_bytes()).hexdigest()})


def test_the_lines_of_a_function_are_those_of_its_file(code):
    sources = Sources(after(code))
    rows = rows_of(py("work", 3, str(code)), py("<lambda>", 11, str(code)), c("sum"))
    assert sources.of(rows) == [(0, 0), (1, 1)]
    (first, work, *_), (at, double, *_) = sources.blocks
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
    known = after(code)
    assert Sources(known).of(rows)
    assert Sources(Snapshot({}, 0)).of(rows) == []  # recorded by an earlier fastprof
    # What a stranger's recording says of a file is not enough: it must know the content.
    module = rows_of(Key("python", str(code), 1, "<module>", "<module>"))
    assert Sources(Snapshot({}, 0, sources={str(code): "0" * 64})).of([*rows, *module]) == []
    code.write_text(CODE.replace("2", "3"), encoding="utf-8")
    assert Sources(known).of(rows) == []


def test_the_page_says_why_it_has_no_source_lines(code, tmp_path):
    key = py("work", 3, str(code))
    snapshot = tree(Node(key, 1, MS), Node(py("gone", 1, str(tmp_path / "gone.py")), 1, MS))
    known = {**after(code).sources, str(tmp_path / "gone.py"): "0" * 64}

    def said(sources):
        found = re.search(
            r"No source lines[^<]*", text_of(report_of(replace(snapshot, sources=sources)))
        )
        return found and unescape(found[0])

    assert said(None).startswith("No source lines: this recording has no digests")
    why = "(changed since the run, or not found from this folder)"
    assert said(known) == f"No source lines of {tmp_path / 'gone.py'} {why}."
    code.write_text("")
    assert said(known) == f"No source lines of {code}, {tmp_path / 'gone.py'} {why}."
    assert "(changed while the program ran, or not found then)" in said({})
    code.write_text(CODE, encoding="utf-8")
    snapshot = tree(Node(key, 1, MS))
    assert said(after(code).sources) is None


def test_source_lines_have_bounds(tmp_path):
    path = tmp_path / "prog.py"
    path.write_text("def work():\n" + "    pass\n" * 500, encoding="utf-8")
    sources = Sources(after(path), PageLimits(source_lines=10))
    assert sources.of(rows_of(py("work", 1, str(path)))) == [(0, 0)]
    assert len(sources.blocks[0][1].splitlines()) == 10
    small = Sources(after(path), PageLimits(source_characters=100))
    assert small.of(rows_of(py("work", 1, str(path)))) == []


def test_lines_have_their_part_of_the_function_s_samples(code):
    work = py("work", 3, str(code))
    rows = (LineSamples(0, 8, 300), LineSamples(0, 5, 99), LineSamples(0, 400, 1))
    made = replace(after(code), keys=(work,), lines=rows)
    sources = Sources(made)
    assert sources.of(rows_of(work, py("<lambda>", 11, str(code)))) == [(0, 0), (1, 1)]
    assert sources.blocks[0][2:] == (400, [(5, 25), (8, 75)])  # line 400 is not in it
    assert sources.blocks[1][2:] == (0, [])


def test_the_page_has_the_source_of_what_was_just_recorded(code):
    snapshot = tree(Node(py("work", 3, str(code)), 1, MS))
    made = report_of(replace(snapshot, sources=after(code).sources))
    part = data_of(text_of(made))["functions"]
    assert part["phases"][0]["source"] == [[0, 0]]
    assert part["sources"][0][0] == 3


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("run `a < b` first", "run <code>a &lt; b</code> first"),
        ("a lone ` stays", "a lone ` stays"),
        ("no code", "no code"),
    ],
)
def test_code_in_a_sentence_is_marked(text, markup):
    assert prose(text) == markup


@pytest.mark.parametrize("high", [0.0, 5e-324, 1e-300, 1.0, 1e308, math.inf])
def test_f46_an_axis_of_any_length_has_ticks_or_none(high: float) -> None:
    found = list(charts._ticks(0.0, high))
    assert bool(found) == (high in (1.0, 1e308))
    assert all(0.0 <= at <= 1.0 for _, at in found)
    assert list(charts._ticks(3.0, 3.0)) == []


def test_a_page_makes_each_row_of_the_function_table_once(monkeypatch):
    report = report_of(large(30, 300))
    made = []
    make = FunctionRows._row

    def counted(rows, *args):
        made.append(1)
        return make(rows, *args)

    monkeypatch.setattr(FunctionRows, "_row", counted)
    page_data(report)
    chapters(report, {"functions"})
    assert len(made) == len(report.functions)


def test_i45_a_page_names_only_the_contexts_that_it_draws() -> None:
    report = build_report(tree(*(Node(py(f"f{i}", i), 1, i * MS) for i in range(1, 30))))
    strings = Strings()
    found = flame_columns([PhaseView("", report, PageLimits(contexts=3, functions=0))], strings)
    (graph,) = found["graphs"]
    names = [strings.table()[found["frames"]["name"][of]] for of in graph["frame"]]
    assert names == ["MainThread", "f29", "f28", "(smaller contexts)"]
    assert len(found["frames"]["name"]) == 4
    assert found["frames"]["users"] == sorted({graph["frame"][1], graph["frame"][2]})


def test_p2_a_function_that_is_not_drawn_takes_little_memory(monkeypatch):
    monkeypatch.setattr(phases, "LIMITS", PageLimits(contexts=200, functions=200))
    if fast.pair_sums is None:
        pytest.skip("there is no extension")

    def most(n):
        rows = range(1, n + 1)
        keys = [Key("root", "", 0, "m", "m"), *[Key("python", "a.py", i, "f", "f") for i in rows]]
        columns = [-1, *[0] * n], range(n + 1), [0, *[i + 999 for i in rows]], [0] * (n + 1)
        nodes = NodeTable(*map(tuple, columns), (0, *[10**6 + i for i in rows]))
        threads = (ThreadTree(1, "main", False, nodes),)
        report = build_report(Snapshot({}, 10**12, tuple(keys), threads))
        tracemalloc.start()
        try:
            page_data(report)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # Dictionaries of both have the same size.
    assert (most(37_000) - most(27_000)) / 10_000 < 280
