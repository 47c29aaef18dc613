"""CSV, data frames, the Markdown summary and the notebook view, each with its readers."""

from __future__ import annotations

import csv
import html
import html.parser
import io
import json
import math
import sys
import tracemalloc
from dataclasses import replace

import fastprof
import pytest
from fastprof.cli import main
from fastprof.export import collapsed, json_
from fastprof.findings import examine as rules
from fastprof.render import formats
from fastprof.render.markdown import MAX_BYTES, MAX_LINES, code, sentence
from fastprof.report import functions as function_tables
from fastprof.report.findings import Examination, Finding
from fastprof.report.steps import SplitRow, StepSeriesView
from fastprof.results.report import build_report
from fastprof.results.saved import load
from fastprof.snapshot import Snapshot, Steps
from fastprof.snapshot.steps import SplitPlace, StepSeries
from fastprof.tables.columns import TABLES, columns
from fastprof.tables.overview import overview as overview_of
from fastprof.tables.report import all_tables, threads_table
from unit.gpu_runs import gpu_training_run
from unit.hostile import NAMES, snapshot_with
from unit.snapshots import MS, Builder, Node, memory, py, replaced, section, tree
from unit.test_report import training_run


@pytest.fixture(scope="module")
def report():
    return build_report(training_run())


@pytest.fixture(scope="module")
def gpu_report():
    return build_report(gpu_training_run())


def read(text):
    return list(csv.DictReader(io.StringIO(text), strict=True))


# ---- JSON


def test_times_of_places_are_in_ms_as_all_times_in_json():
    split = (("compute", 70 * MS), ("gc", 30 * MS))
    steps = Steps(10, 0, 100 * MS, split=split, split_places=(SplitPlace("gc", 0, 1, 25 * MS),))
    report = build_report(tree(Node(py("train"), 1, 100 * MS), steps=steps))
    (row,) = (row for row in json.loads(report.to_json())["steps"]["split"] if row["name"] == "gc")
    assert row["total_ms"] == 30
    assert row["places"] == [["train prog.py:1", 25]]


# ---- CSV


def test_self_times_in_a_csv_file_add_up_to_those_of_the_report(report, tmp_path):
    report.save(tmp_path / "run.csv")
    with open(tmp_path / "run.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, strict=True))
    exported = [float(row["self_ms"]) for row in rows]
    assert exported == [row.self_ms for row in report.functions]
    assert math.fsum(exported) == math.fsum(row.self_ms for row in report.functions) > 0
    assert [int(row["calls"]) for row in rows] == [row.calls for row in report.functions]


def test_a_csv_table_is_the_report_not_rounded(gpu_report):
    rows = read(gpu_report.to_csv("kernels"))
    assert [float(row["total_ms"]) for row in rows] == [k.total_ms for k in gpu_report.kernels]
    assert rows[0]["grid"] == "132x1x1"
    assert [row["name"] for row in rows] == [k.name for k in gpu_report.kernels]
    sections = read(gpu_report.to_csv("sections"))
    assert {row["name"]: float(row["gpu_ms"]) for row in sections} == {
        row.name: row.gpu_ms for row in gpu_report.sections
    }
    parts = read(gpu_report.to_csv("step_sections"))
    assert sum(float(row["total_ms"]) for row in parts) == gpu_report.steps.wall_ms
    assert (parts[1]["name"], parts[1]["target_low"], parts[1]["target_high"]) == (
        "forward", "0.35", "0.4",
    )  # fmt: skip


def test_what_is_not_known_is_an_empty_cell(report):
    assert {row["gpu_ms"] for row in read(report.to_csv("sections"))} == {""}
    val = read(report.to_csv("loaders"))[2]
    assert (val["name"], val["data_ms"], val["workers"]) == ("val", "", "")


def test_steps_are_one_row_each(report):
    series = StepSeriesView(
        first=3,
        start_ms=(10.0, 20.5),
        wall_ms=(10.5, 9.25),
        names={"data": (1.0, 0.0), "forward": (5.0, 6.5)},
        gc_ms=(0.0, 0.5),
    )
    made = replace(report, steps=replace(report.steps, series=series))
    assert read(made.to_csv("steps")) == [
        {"step": "3", "start_ms": "10.0", "wall_ms": "10.5", "section_data_ms": "1.0",
         "section_forward_ms": "5.0", "gc_ms": "0.0"},
        {"step": "4", "start_ms": "20.5", "wall_ms": "9.25", "section_data_ms": "0.0",
         "section_forward_ms": "6.5", "gc_ms": "0.5"},
    ]  # fmt: skip


def test_sections_whose_names_look_the_same_have_a_column_each():
    builder = Builder().thread(Node(py("main"), 1, MS))
    a, b = (builder.key(section(name)) for name in ("a\n", "a\\x0a"))
    series = StepSeries(0, (0, MS), (MS, MS), ((a, (1000, 2000)), (b, (3000, 4000))))
    steps = Steps(2, 0, 2 * MS, 0.0, MS, MS, (MS, MS), series=series)
    made = build_report(builder.snapshot(steps=steps))
    (_, *_, first, second), *_ = columns(made, "steps")
    assert (first, second) == ("section_a\\x0a_ms", "section_a\\x0a'_ms")
    assert [row[-2:] for row in columns(made, "steps")[1]] == [(0.001, 0.003), (0.002, 0.004)]


def test_steps_of_an_old_run_have_their_durations(report):
    rows = read(report.to_csv("steps"))
    assert [int(row["step"]) for row in rows] == list(range(3, 10))
    assert sum(float(row["wall_ms"]) for row in rows) == report.steps.wall_ms


def test_an_empty_run_has_tables_without_rows():
    empty = build_report(Snapshot({}, 0))
    for table in TABLES:
        assert read(empty.to_csv(table)) == []
        assert empty.to_csv(table).endswith("\n")


def test_an_unknown_table_is_refused_with_those_there_are(report):
    with pytest.raises(ValueError, match="no table 'rows'; there are: 'functions', 'sections', "):
        report.to_csv("rows")
    with pytest.raises(ValueError, match="no table 'rows'"):
        report.to_frame("rows")


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_f43_hostile_names_in_csv(name):
    made = build_report(snapshot_with(name))
    for table in TABLES:
        text = made.to_csv(table)
        assert text.encode().decode() == text
        rows = read(text)
        assert all(None not in row and None not in row.values() for row in rows)
        assert len(text.splitlines()) == len(rows) + 1
        for row in rows:  # no formula: a number may begin with a minus sign
            for value in row.values():
                assert not value.startswith(("=", "+", "@", "\t", "\r", "\uff1d"))
    assert len(read(made.to_csv())) == len(made.functions)


# ---- pandas


def test_a_frame_has_the_columns_and_values_of_the_table(gpu_report):
    pandas = pytest.importorskip("pandas")
    frame = gpu_report.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["self_ms"]) == [row.self_ms for row in gpu_report.functions]
    assert frame["self_ms"].dtype == float
    assert frame["calls"].dtype == int
    by_kind = gpu_report.to_frame("kernels").groupby("kind")["total_ms"].sum()
    assert dict(by_kind) == {row.name: row.total_ns / 1e6 for row in gpu_report.gpu.classes}
    for table in TABLES:
        frame = gpu_report.to_frame(table)
        back = pandas.read_csv(io.StringIO(gpu_report.to_csv(table)))
        assert list(back.columns) == list(frame.columns)
        assert len(back) == len(frame)


def test_without_pandas_there_is_an_error_that_says_what_to_install(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"needs pandas \(pip install 'fastprof\[pandas\]'\)"):
        report.to_frame()


# ---- overview


def overview(report):
    return dict(overview_of(report))


def test_s1_01_the_overview_has_all_four_figures_on_a_gpu_run(gpu_report):
    found = overview(gpu_report)
    assert list(found) == ["GPU utilization", "step time", "GPU memory", "recommendation"]
    assert found["GPU utilization"] == "75.0 %"
    assert found["step time"].startswith("100 ms mean, spread (std/mean) 0 %")
    assert found["GPU memory"] == "24.0 of 40.0 GiB (60.0 %)"
    assert found["recommendation"]


def test_s1_01_without_a_gpu_its_figures_are_not_available_and_not_zero(report):
    found = overview(report)
    assert (found["GPU utilization"], found["GPU memory"]) == ("n/a", "n/a")
    assert found["step time"].startswith("27.1 ms mean, spread (std/mean) 19.3 %")
    shown = next(table for table in all_tables(report) if table.title == "Overview")
    assert [row[0] for row in shown.rows] == ["step time", "recommendation"]
    unknown = build_report(replaced(training_run(), memory=memory(total_bytes=None)))
    assert overview(unknown)["GPU memory"] == "24.0 GiB"


def test_the_rules_look_at_a_report_once_whatever_is_made_of_it(monkeypatch):
    made, real = [], rules._examine
    monkeypatch.setattr(rules, "_examine", lambda report: made.append(report) or real(report))
    first = build_report(training_run())
    for make in (first.to_text, first.to_markdown, first.to_json, first._repr_html_):
        make()
    assert len(made) == 1
    # A report made from it is a different one.
    changed = replace(first, steps=replace(first.steps, rows=()))
    assert changed.findings != first.findings
    assert len(made) == 2


# ---- Markdown


FINDING = Finding(
    "data-loading", "critical", "The loop waits for data", 0.31, "%", "above 15 %", "a guide",
    ("Section data takes 31 % of the step.", "More."), ("Use 6 workers.",), 8.4, 0.31,
)  # fmt: skip


class Found:
    """A report with given findings, independent of the rules."""

    def __init__(self, report, *findings):
        self._report = report
        self.known = {"examination": Examination(findings)}

    def __getattr__(self, name):
        return getattr(self._report, name)


def markdown(report, *findings):
    from fastprof.render.markdown import summary

    return summary(Found(report, *findings))


def rendered(text):
    """Return the summary as HTML, by a reader of GitHub's Markdown."""
    markdown_it = pytest.importorskip("markdown_it")
    return markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").render(text)


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.cells = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert tag not in ("a", "img", "script")
        assert all(name == "style" for name, _ in attrs), attrs
        if tag == "tr":
            self.cells.append(0)
        elif tag in ("td", "th"):
            self.cells[-1] += 1

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)


def test_the_summary_has_what_a_ticket_needs(gpu_report):
    split = (SplitRow("compute", 490 * MS, 70.0, 0.7), SplitRow("data", 210 * MS, 30.0, 0.3))
    made = replace(gpu_report, steps=replace(gpu_report.steps, split=split))
    text = markdown(made, FINDING)
    assert text.startswith("### fastprof: 100 ms per step\n")
    assert "| GPU utilization | 75.0 % |" in text
    assert "| `forward` | 56.0 | 56.0 | 35-40 |" in text
    assert "| `train` | 290 | 28.9 | 1 | `x/train.py:1` |" in text
    assert (
        "Each step's time: computing on the host 70.0 ms (70.0 %), loading data 30.0 ms (30.0 %)."
        in text
    )
    assert (
        "1. **The loop waits for data**, estimated saving 8.40 ms per step, 31.0 %. "
        "Section data takes 31 % of the step. Use 6 workers.\n"
    ) in text
    assert "- and 4 more notes in the report" in text
    tags = Tags(rendered(text))
    assert tags.tags.count("table") == 3
    assert set(tags.cells) == {2, 4, 5}
    assert "Model.forward" in tags.texts


def test_the_suffix_md_is_the_summary(report, tmp_path):
    report.save(tmp_path / "run.md")
    assert (tmp_path / "run.md").read_text(encoding="utf-8") == report.to_markdown()


def test_a_stats_file_and_an_empty_run_have_a_summary(tmp_path):
    build_report(tree(Node(py("f"), 3, 5 * MS))).save(tmp_path / "run.stats")
    assert "| `f` | 5.00 | 100 | 3 |" in load(tmp_path / "run.stats").to_markdown()
    assert build_report(Snapshot({}, 0)).to_markdown().startswith("### fastprof: 0 ms")


def worst(name):
    """Return a run with more of everything than fits, all with this name."""
    name = name[:2000]
    run = snapshot_with(name)
    run = replaced(run, notes=tuple(f"{i} {name * 400}" for i in range(50)))
    made = build_report(run)
    finding = replace(FINDING, title=name * 400, evidence=(name * 400,), fix=(name * 400,))
    return made, [finding] * 20


@pytest.mark.parametrize("name", [*NAMES.values(), "&<>", "@a", "*_~#"])
def test_the_summary_is_never_longer_than_a_ticket_takes(name):
    made, findings = worst(name)
    text = markdown(made, *findings)
    assert len(text.encode()) <= MAX_BYTES
    assert text.count("\n") <= MAX_LINES
    assert "| step time |" in text


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_f43_hostile_names_in_the_summary(name):
    made = build_report(snapshot_with(name))
    text = markdown(made, replace(FINDING, title=name[:9999], evidence=(name,)))
    assert all(line.isprintable() for line in text.splitlines())
    tags = Tags(rendered(text))
    assert set(tags.cells) == {2, 4, 5}
    assert tags.tags.count("table") == 3


MARKUP = (
    "a|b", "a\\|b", "`x`|`y`", "``", "<b>x</b>", "<!-- x", "[x](http://e.com)", "![x](u)", "@user",
    "http://e.com", "www.e.com", "*x*", "__x__", "~~x~~", "# x", "1. x", "- x", "&lt;", "a\\", "|",
    "</td></tr></table><script>x</script>", "$x$", "> x", "\\", "***", "---", "+ x", "2) x", "=",
)  # fmt: skip


@pytest.mark.parametrize("name", MARKUP)
def test_p3_no_markup_in_a_name_does_anything(name):
    table = Tags(rendered(f"| a | b |\n| --- | --- |\n| {code(name)} | {code(name + name)} |\n"))
    assert table.cells == [2, 2]
    assert set(table.tags) == {"table", "thead", "tbody", "tr", "th", "td", "code"}
    shown = name.replace("`", "\\x60").replace("|", "\\x7c")
    assert shown in table.texts
    listed = Tags(rendered(f"- {sentence(name)}\n- {sentence('see ' + name)}\n"))
    assert listed.tags == ["ul", "li", "li"]
    assert name in listed.text.replace("\u200b", "")


# ---- notebooks


def test_a_notebook_shows_the_screen_with_its_findings(gpu_report):
    shown = gpu_report._repr_html_()
    assert html.unescape(shown) == f"<pre>{gpu_report.to_text()}</pre>"
    assert gpu_report.findings[0].title in html.unescape(shown)


def test_a_notebook_shows_a_comparison(report):
    made = fastprof.compare(report, report)
    shown = made._repr_html_()
    assert html.unescape(shown) == f"<pre>{made.to_text()}</pre>"


@pytest.mark.parametrize("name", [*NAMES.values(), *MARKUP])
def test_f43_hostile_names_in_a_notebook(name):
    tags = Tags(build_report(snapshot_with(name))._repr_html_())
    assert tags.tags == ["pre"]
    assert len(tags.text) < 40_000


# ---- collapsed stacks that would be too large


def deep_run(functions=60, depth=150):
    """Return chains of calls; the i-th took i ms at its end."""
    chains = []
    for i in range(1, functions + 1):
        node = Node(py(f"work_{i}"), 1, i * MS)
        for level in range(depth):
            node = Node(py(f"level_{level}_with_a_long_name"), 1, 1000, [node])
        chains.append(Node(py(f"chain_{i}"), 1, 0, [node]))
    return build_report(tree(Node(py("main"), 1, MS, chains)))


def test_collapsed_stacks_are_cut_so_that_the_file_is_not_too_large():
    report = deep_run()
    whole = formats.render(report, "collapsed", min_percent=0.0)
    share, size = collapsed.needed_percent(report, most=len(whole) // 3)
    assert size == pytest.approx(len(whole), rel=0.1)
    assert share > 0
    cut = formats.render(report, "collapsed", min_percent=share)
    assert len(cut) <= len(whole) // 3
    # The callers have all the time.
    assert weights(cut) == weights(whole)
    assert collapsed.needed_percent(report) == (0.0, size)


def weights(text):
    return sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines())


def test_a_cut_file_is_announced_and_an_option_writes_all_of_it(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run.fprof"
    deep_run().save(run)
    monkeypatch.setattr(collapsed, "MOST_BYTES", 100_000)
    out = tmp_path / "run.collapsed"
    assert main(["report", str(run), "-o", str(out)]) == 0
    said = capsys.readouterr().err
    assert "were added to their callers; --min-percent 0 writes all of them" in said
    assert out.stat().st_size <= 100_000
    assert main(["report", str(run), "-o", str(out), "--min-percent", "0"]) == 0
    assert capsys.readouterr().err == ""
    assert out.stat().st_size > 100_000
    assert main(["report", str(run), "-o", "x.json", "--min-percent", "1"]) == 2
    assert "requires collapsed stacks" in capsys.readouterr().err


def test_one_section_of_a_run_is_shown_alone(tmp_path, capsys):
    run = tmp_path / "run.fprof"
    build_report(training_run()).save(run)
    assert main(["report", str(run), "--section", "data"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("data: entered 10 times, 5.00 ms each (p50 5.00, p95 5.00")
    assert main(["report", str(run), "--section", "(unaccounted)"]) == 0
    assert "(unaccounted): what the thread of the steps does in no section; " in (
        capsys.readouterr().out
    )
    assert main(["report", str(run), "--section", "nothing"]) == 2
    assert "no section 'nothing' was recorded; there are: " in capsys.readouterr().err


def test_i45_writing_json_needs_no_memory_per_function() -> None:
    report = build_report(tree(*(Node(py(f"f{i}", i), 1, MS) for i in range(1500))))
    assert len(list(report.functions)) == 1500  # the rows are made before

    class Counted(io.TextIOBase):
        size = 0

        def write(self, text: str) -> int:
            self.size += len(text)
            return len(text)

    stream = Counted()
    report.examination  # noqa: B018 - the findings are no part of the writing
    tracemalloc.start()
    json_.write(report, stream)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < stream.size


def test_i45_json_has_the_functions_with_most_time_and_counts_the_others(monkeypatch) -> None:
    monkeypatch.setattr(json_, "_FUNCTIONS", 4)
    report = build_report(tree(*(Node(py(f"f{i}", i), 1, i * MS) for i in range(1, 8))))
    found = json.loads(report.to_json())
    assert [row["name"] for row in found["functions"]] == ["f7", "f6", "f5", "f4"]
    assert found["functions_left_out"] == 3
    (thread,) = found["threads"]
    assert (len(thread["functions"]), thread["functions_left_out"]) == (4, 3)


def test_i45_the_tables_of_many_threads_are_summed_without_rows(monkeypatch) -> None:
    build = Builder()
    for i in range(3):
        inner = Node(py("g", 9), 3, (i + 1) * MS, [Node(py("f"), 1, MS)])
        build.thread(Node(py("f"), 2, 5 * MS, [inner]), root_ns=MS, ident=i + 1)
    snapshot = build.snapshot()
    kept = build_report(snapshot)
    rows, threads = tuple(kept.functions), threads_table(kept).rows
    monkeypatch.setattr(function_tables, "_FEW_THREADS", 1)
    made_anew = build_report(replaced(snapshot))
    assert tuple(made_anew.functions) == rows
    monkeypatch.setattr(function_tables.FunctionRows, "_row", None)
    assert threads_table(made_anew).rows == threads
