"""HTML reports in a real browser: content, use, and names without effect."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from importlib import resources
from itertools import combinations, product
from pathlib import Path

import pytest
from browser import Browser, browser, find_browser
from fastprof.render.html import SCRIPTS
from fastprof.render.html import run_phases as phases
from fastprof.render.html.charts import colours
from fastprof.render.html.limits import PageLimits
from fastprof.report.loaders import loader_rows
from fastprof.report.rows import OWN_COST, UNACCOUNTED
from fastprof.report.source_files import digests
from fastprof.report.steps import OWN_KIND
from fastprof.snapshot import LoaderStats
from fastprof.snapshot.loaders import LoadTime, WorkerStats
from fastprof.snapshot.steps import SPLIT_KINDS
from unit.pages import MARKUP, hostile, in_phases, large, report_of, training, with_outlier
from unit.snapshots import MS, Node, py, tree

if find_browser() is None:
    pytest.skip("no Chromium was found", allow_module_level=True)

WIDE, TABLET, LAPTOP, PHONE = (1400, 900), (1024, 768), (1440, 900), (360, 740)

#: All allowed elements and attributes; a name that became one is not among them.
ELEMENTS = set(
    """html head meta title style script body a header div h1 h2 h3 h4 p fieldset legend label
    input span nav main dl dt dd section figure figcaption ul ol li table thead tbody tfoot tr th
    td button select option canvas output strong details summary article
    noscript pre code svg path polyline""".split()
)
ATTRIBUTES = set(
    """lang charset http-equiv content name class id href type value checked tabindex for scope
    role title style hidden disabled colspan placeholder autocomplete spellcheck width height
    open viewBox preserveAspectRatio d points""".split()
)


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def training_page(folder) -> Path:
    with_outlier(report_of(training())).save(folder / "training.html")
    return folder / "training.html"


@pytest.fixture(scope="module")
def large_page(folder) -> Path:
    report_of(large(3000, 12_000)).save(folder / "large.html")
    return folder / "large.html"


@pytest.fixture(scope="module")
def hostile_page(folder) -> Path:
    report_of(hostile()).save(folder / "hostile.html")
    return folder / "hostile.html"


@pytest.fixture
def page(chromium, training_page) -> Browser:
    return opened(chromium, training_page)


@pytest.fixture
def many(chromium, large_page) -> Browser:
    return opened(chromium, large_page)


def opened(chromium: Browser, path: Path, size=WIDE, **options) -> Browser:
    chromium.console.clear()
    chromium.requests.clear()
    chromium.size(*size, **options)
    chromium.open(path)
    return chromium


def texts(page: Browser, selector: str) -> list[str]:
    return page.run(f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent)")


def type_into(page: Browser, selector: str, text: str) -> None:
    page.run(
        f"(() => {{ const e = document.querySelector({selector!r}); e.value = {text!a};"
        " e.dispatchEvent(new Event('input')); })()"
    )


# ---- the whole page ----


def test_p6_the_page_loads_nothing_and_says_nothing_on_the_console(page, training_page):
    assert page.console == []
    assert [url for url in page.requests if not url.startswith(("blob:", "data:"))] == [
        training_page.as_uri()
    ]


def test_all_chapters_are_there_and_the_links_lead_to_them(page):
    titles = texts(page, "h2")
    assert titles == texts(page, "nav a")
    wanted = ["Steps", "Sections", "Flame graph", "Functions", "Kernels", "GPU"]
    assert [title for title in titles if title in wanted] == wanted
    links = page.run("[...document.querySelectorAll('nav a')].map((a) => a.getAttribute('href'))")
    assert all(page.run(f"document.querySelector({link!r}) !== null") for link in links)


def test_the_figures_are_those_of_the_report(page):
    rows = texts(page, "#sections tbody tr")
    assert len(rows) == 2
    assert rows[0].startswith("data20100")
    assert "Net.inner" in texts(page, "#functions tbody th")[0]


def test_without_scripts_the_page_has_all_but_what_they_draw(chromium, training_page):
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.call("Page.navigate", url=training_page.as_uri())
        chromium.wait("document.readyState === 'complete'")
        assert len(texts(chromium, "#steps svg")) == 2
        assert texts(chromium, "#sections tbody tr")
        assert "allow scripts" in chromium.run("document.body.innerText")
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize(
    ("size", "dark"), list(product((WIDE, TABLET, LAPTOP, (390, 844), PHONE), (False, True)))
)
def test_nothing_is_wider_than_the_screen(chromium, training_page, size, dark):
    page = opened(chromium, training_page, size, dark=dark)
    assert page.run("document.documentElement.scrollWidth") == size[0]
    assert page.console == []


def test_the_switch_changes_the_colours_and_the_system_may_decide(chromium, training_page):
    def background(page):
        return page.run("getComputedStyle(document.body).backgroundColor")

    def choose(theme):
        page.run(f"document.querySelector('input[value={theme}]').click()")

    page = opened(chromium, training_page)
    light = background(page)
    choose("dark")
    dark = background(page)
    assert light != dark
    page = opened(chromium, training_page, dark=True)
    assert background(page) == dark
    choose("light")
    assert background(page) == light
    assert page.console == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_enough_contrast(chromium, training_page, dark):
    page = opened(chromium, training_page, dark=dark)
    style = "getComputedStyle(document.documentElement)"

    def luminance(name):
        text = page.run(f"{style}.getPropertyValue('--{name}').trim()")
        parts = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(f * p for f, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def contrast(a, b):
        low, high = sorted((luminance(a), luminance(b)))
        return (high + 0.05) / (low + 0.05)

    fills = [
        *(f"flame-{kind}-{i}" for kind in ("section", "python", "c", "kernel") for i in range(3)),
        *("flame-type", "flame-place", "flame-root", "flame-small", "flame-match"),
    ]
    pairs = [
        *product(("text", "minor", "accent"), ("background", "surface", "raised")),
        *product(("critical", "warning", "note"), ("surface",)),
        *product(("flame-text",), fills),
        *product(("text", "accent"), ("mark",)),
    ]
    # Level AA of the Web Content Accessibility Guidelines, small text.
    assert {pair: round(contrast(*pair), 2) for pair in pairs if contrast(*pair) < 4.5} == {}


def test_controls_have_names_and_header_cells_a_scope(page):
    assert page.run("[...document.querySelectorAll('th:not([scope])')].length") == 0
    named = "(e.labels && e.labels.length) || e.textContent.trim() || e.ariaLabel"
    controls = "[...document.querySelectorAll('button:not([hidden]), input, select')]"
    assert page.run(f"{controls}.filter((e) => !({named})).map((e) => e.outerHTML)") == []
    regions = "[...document.querySelectorAll('[role=region], [role=img], [role=application]')]"
    assert page.run(f"{regions}.filter((e) => !e.ariaLabel).length") == 0
    ids = page.run("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_printing_opens_the_function_table(many):
    many.run("dispatchEvent(new Event('beforeprint'))")
    printed = len(texts(many, ".virtual tbody tr:not(.spacer)"))
    many.run("dispatchEvent(new Event('afterprint'))")
    assert printed == 60 > len(texts(many, ".virtual tbody tr:not(.spacer)"))
    assert many.console == []


def test_the_split_and_the_slowest_steps_are_shown(page):
    assert [t.strip() for t in texts(page, "#steps figcaption")][:2] == [
        "Where a step's time goes", "Sections of a step",
    ]  # fmt: skip
    legend = texts(page, "#steps .legend:first-of-type li")
    assert any(text.startswith("waiting for the GPU10.8 %") for text in legend)
    assert texts(page, ".outlier summary li") == ["data took longer."]
    cells = texts(page, ".outlier tbody tr")
    assert cells == ["data9.005.004.00", "openload6.001.005.0031.0"]


# ---- tables ----


def test_a_header_sorts_and_says_so(page):
    header = "#sections thead th:nth-child(4)"
    for direction, first in (("descending", 0), ("ascending", -1)):
        page.run(f"document.querySelector({header + ' button'!r}).click()")
        assert page.run(f"document.querySelector({header!r}).ariaSort") == direction
        cells = [float(t) for t in texts(page, "#sections tbody td:nth-child(4)")]
        assert cells[first] == max(cells)


def test_of_many_functions_only_those_in_view_are_in_the_page(many):
    def rows():
        return many.run(
            "[...document.querySelectorAll('.virtual tbody tr:not(.spacer)')]"
            ".map((r) => Number(r.ariaRowIndex))"
        )

    assert many.run("document.querySelector('.virtual').ariaRowCount") == "3001"
    assert rows()[0] == 2
    assert len(rows()) < 80
    many.run("document.querySelector('.tall').scrollTop = 1e9")
    many.wait("document.querySelector('.virtual tbody tr:nth-last-child(2)').ariaRowIndex == 3001")
    assert len(rows()) < 80


def test_the_function_table_is_filtered_and_sorted(many):
    type_into(many, "#function-filter", "WORK_77")
    many.wait("document.querySelector('#functions output').textContent.startsWith('11 of 3,000')")
    found = texts(many, ".virtual tbody th")
    assert {"work_77", "work_770", "work_779"} <= set(found)
    many.run("document.querySelector('.virtual thead button').click()")
    assert texts(many, ".virtual tbody th") == sorted(found)
    many.run("document.querySelector('.virtual thead th:nth-child(2) button').click()")
    times = [float(t.replace(",", "")) for t in texts(many, ".virtual tbody td:nth-child(2)")]
    assert times == sorted(times, reverse=True)


def test_a_chosen_function_shows_its_callers_and_callees(page):
    click = "[...document.querySelectorAll('.virtual button.name')].find((b) => b.title === {!r})"
    page.run(click.format("Net.inner") + ".click()")
    assert texts(page, ".calls h3") == ["Net.inner"]
    assert texts(page, ".calls tbody th") == ["Net.forward", "sum"]
    page.run("document.querySelector('.calls tbody button').click()")
    assert texts(page, ".calls h3") == ["Net.forward"]
    assert texts(page, ".calls tbody th") == ["train", "Net.inner"]


#: For each scrolling box: the position of its first cells, and whether it is all in view.
BOXES = """[...document.querySelectorAll('.scroll')].map((box) => {
  box.scrollLeft = 150;
  const left = box.getBoundingClientRect().left;
  const first = [...box.querySelectorAll('thead :first-child, tbody tr:not(.spacer) > th')];
  const off = first.filter((e) => e.matches('tr > *') && e.getBoundingClientRect().left > left + 2);
  return [box.ariaLabel, box.scrollLeft, off.length];
})"""


@pytest.fixture(scope="module")
def wide_page(folder) -> Path:
    """Return a page with tables of many columns, including loaders."""
    report = with_outlier(report_of(training()))
    loads = tuple(LoadTime(i, 3000, 90_000 * MS, 1200 * MS) for i in range(4))
    workers = WorkerStats(
        4, 2, 64, True, "forkserver", 8, ready=2000, blocked=1500, blocked_ns=90_000 * MS,
        depth=(9, 90, 900, 900, 9, 0, 0, 0), loads=loads, measured=True,
    )  # fmt: skip
    stats = LoaderStats("loader", "validation", 3500, {"data": (3500, 1 << 40)}, None, workers)
    rows = loader_rows(replace(report.snapshot, loaders=(stats,)))
    replace(report, loaders=rows).save(folder / "wide.html")
    return folder / "wide.html"


@pytest.mark.parametrize("size", [TABLET, LAPTOP])
def test_tables_fit(chromium, wide_page, size):
    page = opened(chromium, wide_page, size)
    page.run("for (const d of document.querySelectorAll('details')) d.open = true")
    boxes = page.run(BOXES)
    assert "Workers of the loaders" in " ".join(name for name, _, _ in boxes)
    assert [box for box in boxes if box[1]] == []


def test_on_a_phone_the_names_stay_in_view(chromium, wide_page):
    boxes = opened(chromium, wide_page, (390, 844)).run(BOXES)
    assert sum(box[1] > 0 for box in boxes) > 3
    assert [box for box in boxes if box[2]] == []


def test_a_filtered_function_table_is_no_higher_than_its_rows(many):
    height = "document.querySelector('.tall').clientHeight"
    before = many.run(height)
    type_into(many, "#function-filter", "WORK_77")
    many.wait(f"{height} < {before}")
    type_into(many, "#function-filter", "work_2999")
    many.wait("document.querySelector('#functions output').textContent.startsWith('1 of')")
    assert 60 <= many.run(height) < 100
    type_into(many, "#function-filter", "")
    many.wait(f"{height} === {before}")
    assert len(texts(many, ".virtual tbody th")) > 15


def test_who_is_called_from_nowhere_has_a_caller(page):
    page.run("[...document.querySelectorAll('.name')].find((b) => b.title === 'train').click()")
    assert texts(page, ".calls .pair > :first-child tbody tr") == ["(start of the thread)1260.0"]
    assert texts(page, ".calls h4")[0] == "Called by (1)"
    assert "null" not in texts(page, ".calls > *")


def test_a_chosen_function_shows_its_source_and_names_in_it_do_nothing(chromium, folder):
    path = folder / "prog.py"
    code = (
        "def work():\n    '<img src=x onerror=window.broken=1> </script>'\n    return 1\n\nx = 2\n"
    )
    path.write_text(code, encoding="utf-8")
    snapshot = tree(Node(py("work", 1, str(path)), 1, MS))
    report_of(replace(snapshot, sources=digests(snapshot))).save(folder / "source.html")
    page = opened(chromium, folder / "source.html")
    page.run("document.querySelector('.virtual button.name').click()")
    lines = [f"{i + 1}  {line}" for i, line in enumerate(code.splitlines()[:3])]
    assert texts(page, ".source pre") == ["\n".join(lines)]
    assert page.run("'broken' in window") is False
    assert page.console == []


# ---- phases of the run ----


def choose(page: Browser, selector: str, value: int) -> None:
    page.run(
        f"(() => {{ const e = document.querySelector({selector!r}); e.value = {value};"
        " e.dispatchEvent(new Event('change')); })()"
    )


def test_another_phase_is_one_choice_away(chromium, folder):
    report_of(in_phases()).save(folder / "phases.html")
    page = opened(chromium, folder / "phases.html")
    names = ["measured steps", "set-up", "validation", "whole run"]
    assert texts(page, "#flame-phase option") == texts(page, "#function-phase option") == names
    assert detail(page).startswith("MainThread: 11.00 ms")
    choose(page, "#flame-phase", 1)
    assert detail(page).startswith("MainThread: 3.000 ms")
    assert page.run("document.querySelector('#function-phase').value") == "1"
    assert texts(page, ".virtual tbody th") == ["work", "<module> prog.py"]
    choose(page, "#function-phase", 3)
    assert detail(page).startswith("MainThread: 19.00 ms")
    assert press(page, "ArrowDown", "ArrowDown").startswith("<module> prog.py: 19.00 ms (100.0 %)")
    press(page, "ArrowDown", "f")
    assert texts(page, ".calls h3") == ["work"]
    assert "16.00 ms" in texts(page, ".calls dd")
    assert page.console == []


def test_library_frames_are_folded_on_demand(chromium, folder):
    at = "/env/lib/python3.12/site-packages/torch/nn.py"
    inner = Node(py("inner", 5, at), 1, 3 * MS, [Node(py("forward", 7), 1, 4 * MS)])
    entry = Node(py("entry", 1, at), 1, 2 * MS, [inner, Node(py("other", 9, at), 1, MS)])
    report_of(tree(Node(py("main"), 1, MS, [entry]))).save(folder / "fold.html")
    page = opened(chromium, folder / "fold.html")
    page.run("document.querySelector('#flame-fold').click()")
    assert detail(page).startswith("MainThread: 11.00 ms")
    assert press(page, "ArrowDown", "ArrowDown").startswith("main: 11.00 ms")
    assert press(page, "ArrowDown").startswith("entry: 10.00 ms (90.9 %), 6.000 ms itself, 1 calls")
    assert press(page, "ArrowDown").startswith("forward: 4.000 ms")
    assert press(page, "ArrowDown").startswith("forward: 4.000 ms")
    page.run("document.querySelector('#flame-fold').click()")
    steps = ["ArrowDown"] * 4
    assert press(page, *steps).startswith("inner: 7.000 ms")


# ---- charts ----


@pytest.fixture
def clipped_page(folder) -> Path:
    report = report_of(training())
    wall = (*(15.0 + i % 3 for i in range(119)), 291.0)
    series = replace(report.steps.series, wall_ms=wall, names={}, gc_ms=())
    steps = replace(report.steps, series=series, p50_ms=16.0, p95_ms=16.2)
    replace(report, steps=steps).save(folder / "clipped.html")
    return folder / "clipped.html"


def test_charts_end_above_the_usual_steps_and_say_so(chromium, clipped_page):
    page = opened(chromium, clipped_page)
    (said,) = texts(page, ".clipped")
    assert said.startswith("1 step above 20.4 ms is clipped in these charts")
    assert said.endswith("the longest took 291 ms.")
    (values, _), (_, places) = (
        [texts(page, f"#steps .part > figure:nth-child({n}) .axis-{axis} .tick") for axis in "yx"]
        for n in (1, 2)
    )
    assert 15 <= float(values[-1]) < 22
    assert 15 <= float(places[-1]) < 22
    assert page.run("document.querySelectorAll('#steps .over').length") == 1
    assert page.console == []


#: Position of elements: left, right, top, bottom.
RECTANGLES = """[...document.querySelectorAll({!r})].map((e) => {{
  const r = e.getBoundingClientRect(); return [r.left, r.right, r.top, r.bottom]; }})"""


@pytest.mark.parametrize("size", [TABLET, LAPTOP, (390, 844)])
def test_labels_of_charts_do_not_collide(chromium, clipped_page, training_page, size):
    for path in (clipped_page, training_page):
        page = opened(chromium, path, size)
        count = page.run("document.querySelectorAll('.chart').length")
        for n in range(count):
            page.run(f"document.querySelectorAll('.chart')[{n}].id = 'chart'")
            boxes = page.run(RECTANGLES.format("#chart :is(.tick, .mark-label, .unit, figcaption)"))
            for (left, right, top, bottom), other in combinations(boxes, 2):
                apart = right <= other[0] or other[1] <= left
                assert apart or bottom <= other[2] + 1 or other[3] <= top + 1
            ((left, right, _, _),) = page.run(RECTANGLES.format("#chart"))
            assert left <= min(box[0] for box in boxes)
            assert max(box[1] for box in boxes) <= right
            page.run("document.querySelector('#chart').id = ''")


def chart_place(page: Browser, share: float) -> tuple[float, float]:
    """Scroll to the steps' chart; return the position at ``share`` of its width."""
    page.run("document.querySelector('.shapes').scrollIntoView({ block: 'center' })")
    ((left, right, top, bottom), *_) = page.run(RECTANGLES.format(".shapes"))
    return left + share * (right - left), (top + bottom) / 2


def mouse(page: Browser, kind: str, x: float, y: float, **more) -> None:
    page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)


def test_a_chart_says_what_is_at_the_place_pointed_at(page):
    mouse(page, "mouseMoved", *chart_place(page, 0.02))
    assert texts(page, "#steps .detail")[0] == (
        "Step 3, 13.0 ms: data 5.00, forward 7.00, (unaccounted) 1.00; garbage collection 1.00 ms"
    )
    mouse(page, "mouseMoved", *chart_place(page, 0.99))
    assert texts(page, "#steps .detail")[0].startswith("Step 22, ")
    page.run("document.querySelector('.plot').focus()")
    page.key("ArrowLeft")
    assert texts(page, "#steps .detail")[0].startswith("Step 21, ")


def test_a_drag_zooms_a_chart_and_a_double_click_resets_it(page):
    view = "document.querySelector('.shapes svg').getAttribute('viewBox').split(' ').map(Number)"
    axis = ".chart.area .axis-x .tick"
    ticks = texts(page, axis)
    start, end = chart_place(page, 0.25), chart_place(page, 0.5)
    mouse(page, "mousePressed", *start, button="left", clickCount=1)
    mouse(page, "mouseMoved", *end, button="left", buttons=1)
    assert page.run("document.querySelector('.brush').hidden") is False
    mouse(page, "mouseReleased", *end, button="left", clickCount=1)
    assert page.run("document.querySelector('.brush').hidden") is True
    assert page.run(view) == [pytest.approx(n, abs=0.1) for n in (5, 0, 5, 1000)]
    assert texts(page, axis) == ["8", "9", "10", "11", "12"] != ticks
    mouse(page, "mouseMoved", *chart_place(page, 0.99))
    assert texts(page, "#steps .detail")[0].startswith("Step 12, ")
    for clicks in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            mouse(page, kind, *end, button="left", clickCount=clicks)
    assert page.run(view) == [0, 0, 20, 1000]
    assert texts(page, axis) == ticks
    assert page.console == []


def test_a_drag_zooms_the_histogram_with_its_axis_and_marks(page):
    svg = "document.querySelector('.chart.bars svg')"
    view = f"{svg}.getAttribute('viewBox').split(' ').map(Number)"
    shapes, axis, marks = (
        f".chart.bars .{name}" for name in ("shapes", "axis-x .tick", "mark-label")
    )
    shown = f"[...document.querySelectorAll('{marks}')].filter((m) => !m.hidden).length"
    whole, ticks = page.run(view), texts(page, axis)
    assert page.run(shown) == len(texts(page, marks)) == 2
    page.run(f"document.querySelector('{shapes}').scrollIntoView({{ block: 'center' }})")
    ((left, right, top, bottom),) = page.run(RECTANGLES.format(shapes))
    start, end = ((left + share * (right - left), (top + bottom) / 2) for share in (0.4, 0.6))
    mouse(page, "mousePressed", *start, button="left", clickCount=1)
    mouse(page, "mouseMoved", *end, button="left", buttons=1)
    mouse(page, "mouseReleased", *end, button="left", clickCount=1)
    begin, _, width, _ = page.run(view)
    assert (begin, width) == (
        pytest.approx(0.4 * whole[2], rel=0.1),
        pytest.approx(0.2 * whole[2], rel=0.5),
    )
    zoomed = [float(text) for text in texts(page, axis)]
    assert len(zoomed) > 1
    assert texts(page, axis) != ticks
    assert page.run(shown) < 2
    for clicks in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            mouse(page, kind, *end, button="left", clickCount=clicks)
    assert (page.run(view), texts(page, axis), page.run(shown)) == (whole, ticks, 2)
    assert page.console == []


# ---- flame graph ----


def detail(page: Browser) -> str:
    return page.run("document.querySelector('#flame-detail').textContent")


def press(page: Browser, *keys: str) -> str:
    page.run("document.querySelector('.flame').focus()")
    for key in keys:
        page.key(key)
    return detail(page)


def test_the_flame_graph_is_drawn(page):
    painted = page.run(
        "(() => { const c = document.querySelector('.flame canvas');"
        " const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " const seen = new Set(); for (let i = 0; i < data.length; i += 4)"
        " if (data[i + 3] === 255) seen.add(data.slice(i, i + 3).join()); return seen.size; })()"
    )
    assert painted > 4


def test_the_flame_graph_is_used_by_keyboard(page):
    assert press(page, "ArrowDown") == "MainThread: 262.0 ms (100.0 %), 2.000 ms itself"
    assert press(page, "ArrowDown").startswith("train: 260.0 ms (99.2 %), 4.000 ms itself, 1 calls")
    assert press(page, "ArrowDown").startswith("[forward]: 156.0 ms")
    assert press(page, "ArrowRight").startswith("[data]: 100.0 ms")
    assert press(page, "ArrowLeft").startswith("[forward]")
    assert press(page, "ArrowUp").startswith("train")
    assert page.run("document.querySelector('.controls > button').disabled") is True
    press(page, "ArrowDown", "Enter")
    assert page.run("document.querySelector('.controls > button').disabled") is False
    press(page, "Escape")
    assert page.run("document.querySelector('.controls > button').disabled") is True


def test_a_click_zooms_and_the_button_resets(page):
    page.run("document.querySelector('.flame').scrollIntoView({ block: 'center' })")
    x, y = page.run(
        "(() => { const r = document.querySelector('.flame canvas').getBoundingClientRect();"
        " return [r.left + r.width * 0.8, r.top + 50]; })()"
    )
    page.click(x, y)
    assert detail(page).startswith("[data]: 100.0 ms")
    # It now fills the view, so the same level begins with it.
    page.click(x - 0.75 * 1300, y)
    assert detail(page).startswith("[data]")
    page.run("document.querySelector('.controls > button').click()")
    assert detail(page).startswith("MainThread")


def test_a_search_says_what_part_of_the_time_matches(page):
    type_into(page, "#flame-search", "INNER")
    page.wait("document.querySelector('output[for=flame-search]').textContent")
    # 121 of 262 ms, including its callees.
    found = texts(page, "output[for=flame-search]")
    assert found == ["46.2 % of the time in 1 contexts"]


def test_there_is_a_graph_per_thread_and_by_gpu_time(page):
    graphs = texts(page, "#flame-graph option")
    assert graphs == ["Time: MainThread", "Time: watcher", "GPU time: MainThread"]
    choice = "document.querySelector('#flame-graph')"
    page.run(f"{choice}.value = 2; {choice}.dispatchEvent(new Event('change'))")
    assert detail(page) == "MainThread: 40.00 ms (100.0 %), 0.000 ms itself"


def test_the_flame_graph_leads_to_the_function_table(page):
    press(page, "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "f")
    assert texts(page, ".calls h3") == ["Net.inner"]
    assert page.run("document.activeElement.title") == "Net.inner"


def test_what_had_no_room_is_said(chromium, folder, monkeypatch):
    limits = PageLimits(contexts=50, functions=20, edges=10)
    monkeypatch.setattr(phases, "LIMITS", limits)
    path = folder / "limited.html"
    report_of(large(40, 400)).save(path)
    page = opened(chromium, path)
    page.run("document.querySelector('.virtual button.name').click()")
    text = page.run("document.body.innerText")
    assert "20 of 20 functions (the first 20 of 40)" in text
    assert re.search(r"\d+ small contexts are drawn together", text)
    assert re.search(r"\d+ pairs of caller and callee with little time are left out", text)
    assert page.console == []


# ---- hostile names ----


def test_p3_no_name_becomes_markup(chromium, hostile_page):
    page = opened(chromium, hostile_page)
    shown = page.run("document.querySelector('#functions output').textContent")
    for text in ("<script", "onerror", "'", "__proto__", "\u202e"):
        type_into(page, "#flame-search", text)
        type_into(page, "#function-filter", text)
    type_into(page, "#function-filter", "")
    page.wait(f"document.querySelector('#functions output').textContent === {json.dumps(shown)}")
    for i in range(12):
        page.run(f"document.querySelectorAll('.virtual button.name')[{i}].click()")
    press(page, "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight")
    page.run("for (const d of document.querySelectorAll('details')) d.open = true")
    page.run("for (const b of document.querySelectorAll('.more')) b.click()")

    assert page.console == []
    assert page.run("'broken' in window") is False
    tags = page.run("[...new Set([...document.querySelectorAll('*')].map((e) => e.localName))]")
    assert set(tags) <= ELEMENTS
    names = "[...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames())"
    attributes = page.run(f"[...new Set({names})]")
    assert {a for a in attributes if not a.startswith(("aria-", "data-"))} <= ATTRIBUTES
    assert set(page.run("[...document.links].map((a) => a.getAttribute('href')[0])")) == {"#"}


def test_p3_names_are_shown_as_they_are_with_controls_escaped(chromium, hostile_page):
    page = opened(chromium, hostile_page)
    page.run("for (const b of document.querySelectorAll('.more')) b.click()")
    shown = texts(page, "#sections tbody th")
    assert set(MARKUP) <= set(shown)
    assert '""' in shown
    assert "a\\u202eb\\u2066c\\u200f" in shown
    assert "a\\u2028b\\u2029c" in shown
    text = page.run("document.body.textContent")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text)


# ---- scripts ----


def test_the_scripts_are_all_in_the_page(page):
    folder = Path(sys.modules["fastprof.render.html"].__file__).parent / "js"
    assert {path.name for path in folder.iterdir()} == set(SCRIPTS)


def test_f46_any_number_of_notes_can_be_opened(chromium, folder):
    # More than the possible number of arguments in JavaScript.
    notes = tuple(f"note {i}" for i in range(200_000))
    report_of(replace(training(), notes=notes)).save(folder / "notes.html")
    page = opened(chromium, folder / "notes.html")
    assert page.run("document.querySelector('.notes').children.length") > len(notes)
    assert page.console == []


def test_a_colour_has_one_meaning_on_a_page() -> None:
    names = [*SPLIT_KINDS, OWN_KIND, "forward", "backward", "optimizer", OWN_COST, UNACCOUNTED]
    own = ["h2d", "callbacks", "sampling"]
    found = dict(zip([*names, *own], colours([*names, *own]), strict=True))
    alike = {frozenset({OWN_KIND, OWN_COST}), frozenset({"other", UNACCOUNTED})}
    for a, b in combinations(found, 2):
        assert (found[a] == found[b]) == (frozenset({a, b}) in alike), (a, b)
    # Also in another chart of that page.
    assert colours(["data", "sampling"], own) == [found["data"], found["sampling"]]
    css = resources.files("fastprof.render.html") / "css"
    for number in range(max(found.values()) + 1):
        assert f".series-{number} " in (css / "parts.css").read_text()
        for file in ("page.css", "dark.css"):
            assert f"--series-{number}: #" in (css / file).read_text(), (file, number)
