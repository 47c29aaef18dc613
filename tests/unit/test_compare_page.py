"""Comparisons as HTML pages: their content, and nothing but it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import fastprof
import pytest
from fastprof.cli import main
from fastprof.comparison.layout import blocks
from fastprof.comparison.steps_chart import steps_chart
from fastprof.render.html.charts import figure
from fastprof.results.report import build_report
from fastprof.tables.blocks import Chart, Code
from unit.comparisons import function, normal, run
from unit.hostile import NAMES
from unit.pages import MARKUP
from unit.snapshots import MS, Node, py, tree

N = 120


class Page(HTMLParser):
    """The elements of a page, their attributes and its text; every tag must be closed."""

    VOID = frozenset({"meta", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


@pytest.fixture(scope="module")
def comparison():
    return fastprof.compare(
        run(normal(10.0, N, 1), {"data": normal(2.0, N, 3)}, functions=[function("work", 10)]),
        run(normal(12.0, N, 2), {"data": normal(2.0, N, 4)}, functions=[function("work", 30)]),
    )


def test_the_page_has_every_block_and_every_cell(comparison):
    page = Page(comparison.to_html())
    assert "\\x0a" not in page.words
    for block in blocks(comparison):
        assert block.title.strip("= ") in page.words
        for part in block.parts:
            said = [line.name for line in part.lines] if isinstance(part, Chart) else ()
            said = part.lines if isinstance(part, Code) else said
            for row in getattr(part, "rows", said):
                assert all(text.strip() in page.words for text in ((row,), row)[type(row) is tuple])


def test_the_chart_has_a_line_and_a_median_per_run(comparison):
    text = comparison.to_html()
    assert Page(text).tags.count("polyline") == 2
    assert text.count('class="level"') == 2
    medians = re.findall(r"steps, median (\S+) ms", text)
    assert [float(ms) for ms in dict.fromkeys(medians)] == pytest.approx([10, 12], rel=0.05)


def chart(*runs):
    ((chart,),) = (block.parts for block in steps_chart([*"abcd"[: len(runs)]], runs))
    return chart


def test_one_slow_step_does_not_flatten_the_chart():
    made = chart([10.0] * 200, [*[12.0] * 199, 900.0])
    assert made.remark.endswith("1 step takes longer than 14.4 ms, where the chart ends.")
    assert made.readings[199] == "Step 199: a 10.0 ms, b 900 ms"
    (points,) = re.findall('points="([^"]+)"', figure(made))[:1]
    ys = [int(point.split(",")[1]) for point in points.split()]
    assert 300 < min(ys) == max(ys) < 400
    assert figure(made).count('class="over"') == 1


def test_many_steps_are_drawn_as_means_and_the_chart_says_so():
    made = chart([1.0] * 5000, [2.0] * 4000)
    assert "Each point is the mean of 11 steps." in made.remark
    assert made.readings[0] == "Steps 0 to 10: a 1.00 ms, b 2.00 ms"
    assert made.readings[-1] == "Steps 4994 to 4999: a 1.00 ms"
    points = re.findall('points="([^"]+)"', figure(made))
    assert [len(way.split()) for way in points] == [455, 364]


def test_runs_without_steps_have_no_chart(comparison):
    assert steps_chart(("a", "b"), [[], [1.0] * 9]) == []
    nothing = fastprof.compare(build_report(tree(Node(py("f"), 1, MS))), run([10.0] * 9))
    assert "<svg" not in nothing.to_html()


def test_several_runs_are_one_chart():
    made = [run(normal(10.0 + i, N, i)) for i in range(4)]
    text = fastprof.compare(*made).to_html()
    Page(text)
    assert text.count("<polyline ") == 4
    assert "Step times" not in fastprof.compare(*made).to_text()


@pytest.mark.parametrize("name", [*NAMES.values(), *MARKUP])
def test_f43_hostile_names_are_text(name):
    sides = [
        run([10.0] * 9, {name: [1.0] * 9}, functions=[Node(py(name, i, name), 1, i * MS)],
            meta={"command": f"{name}{i}"})
        for i in (1, 5)
    ]  # fmt: skip
    text = fastprof.compare(*sides).to_html()
    assert text.isascii()
    page = Page(text)
    # Our own elements: the data of the chart, the script of the page and the link to its content.
    assert (page.tags.count("script"), page.tags.count("a")) == (2, 1)
    assert not {"img", "iframe", "textarea"} & set(page.tags)
    assert not [each for each in page.attributes if each.startswith("on")]
    assert not {"src", "srcdoc"} & page.attributes


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, ms in (("a", 10.0), ("b", 12.0)):
        run(normal(ms, N, 1)).save(tmp_path / f"{name}.fprof")
    files = [str(tmp_path / f"{name}.fprof") for name in "ab"]
    out = tmp_path / "changes.html"
    assert main(["compare", *files, "-o", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "default-src &#x27;none&#x27;" in text
    assert main(["compare", *files, "-o", str(tmp_path / "x.hmtl")]) == 2
    assert "did you mean .html?" in capsys.readouterr().err
