"""Comparisons as HTML pages: what stands in them, and that nothing else does."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import fastprof
import pytest
from fastprof.cli import main
from fastprof.comparison.layout import blocks
from fastprof.comparison.steps_chart import steps_chart
from fastprof.report import build_report
from unit.comparisons import function, normal, run
from unit.hostile import NAMES
from unit.pages import MARKUP
from unit.snapshots import MS, Node, py, tree

N = 120


class Page(HTMLParser):
    """The elements of a page, their attributes and its text; every tag must be closed."""

    VOID = frozenset({"meta", "line"})

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
        if tag != "meta":
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
    for block in blocks(comparison):
        assert block.title.strip("= ") in page.words
        for text in (*block.lines, *block.verbatim):
            assert text.strip() in page.words
        for row in block.table.rows if block.table else ():
            assert all(cell in page.words for cell in row)


def test_the_chart_has_a_line_and_a_median_per_run(comparison):
    text = comparison.to_html()
    assert text.count("<polyline ") == 2
    assert text.count("stroke-dasharray") == 2
    medians = re.findall(r"steps, median (\S+) ms", text)
    assert [float(ms) for ms in dict.fromkeys(medians)] == pytest.approx([10, 12], rel=0.05)
    page = Page(text)
    assert page.tags.count("polyline") == 2


def test_one_slow_step_does_not_flatten_the_chart():
    runs = [[10.0] * 200, [*[12.0] * 199, 900.0]]
    text = steps_chart(("a", "b"), runs)
    assert "1 step takes longer than 14.4 ms, where the chart ends." in text
    ys = [float(y) for y in re.findall(r",([\d.]+)", re.search('points="([^"]+)"', text)[1])]
    assert min(ys) > 0
    assert max(ys) < 150


def test_many_steps_are_drawn_as_means_and_said_to_be():
    text = steps_chart(("a", "b"), [[1.0] * 5000, [2.0] * 4000])
    assert "Each point is the mean of 11 steps." in text
    assert len(re.search('points="([^"]+)"', text)[1].split()) <= 480


def test_runs_without_steps_have_no_chart(comparison):
    assert not steps_chart(("a", "b"), [[], [1.0] * 9])
    nothing = fastprof.compare(build_report(tree(Node(py("f"), 1, MS))), run([10.0] * 9))
    assert "<svg" not in nothing.to_html()


def test_several_runs_are_one_chart():
    made = [run(normal(10.0 + i, N, i)) for i in range(4)]
    text = fastprof.compare(*made).to_html()
    Page(text)
    assert text.count("<polyline ") == 4


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
    assert not {"script", "img", "a", "iframe", "textarea"} & set(page.tags)
    assert not [each for each in page.attributes if each.startswith("on")]
    assert not {"href", "src", "srcdoc"} & page.attributes


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
