"""Our files in speedscope itself; skipped if it is not installed.

speedscope is a page for a browser, from ``npm install -g speedscope`` or from perf8 (``pip install
--no-deps perf8``).  The tests read the data that it saves in its own format.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trace_kit
from browser import browser, find_browser
from fastprof.export.depth import MAX_DEPTH
from fastprof.export.gpu_stacks import gpu_stacks
from fastprof.results.report import Report, build_report
from fastprof.snapshot import Snapshot
from pages_server import serve
from unit.gpu_runs import gpu_training_run
from unit.hostile import NAMES
from unit.snapshots import Builder, Node, py, section
from unit.test_callgrind import graph
from unit.test_flame_graphs import deep_tree, label, name, replay_events, stacks_of
from unit.test_trace import snapshot
from unit.trace_runs import back_to_back

pytestmark = pytest.mark.slow

#: Keeps the saved file instead of downloading it.
_KEEP = """
URL.createObjectURL = (blob) => { window.saved = blob; return ""; };
HTMLAnchorElement.prototype.click = () => {};
"""

_SAVE = "window.dispatchEvent(new KeyboardEvent('keydown', {key: 's', ctrlKey: true}))"

_FAILED = "document.body?.innerText.includes('Something went wrong')"

#: Opens a report with a suffix in speedscope; returns the file that speedscope saves.
Read = Callable[[Report, str], dict[str, Any]]


def find_speedscope() -> Path | None:
    """Return the folder of its page."""
    folders = []
    command = shutil.which("speedscope")
    if command is not None:
        folders.append(Path(command).resolve().parent.parent / "dist" / "release")
    perf8 = importlib.util.find_spec("perf8")
    if perf8 is not None and perf8.origin is not None:
        folders.append(Path(perf8.origin).parent / "speedscope")
    return next((folder for folder in folders if (folder / "index.html").exists()), None)


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Read]:
    pages = find_speedscope()
    if pages is None or find_browser() is None:
        pytest.skip("needs speedscope (of npm, or in pip's perf8) and Chromium")
    folder = tmp_path_factory.mktemp("speedscope")
    files: dict[str, bytes] = {}
    with serve(pages, files) as address, browser() as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=_KEEP)
        # An unreachable style sheet would delay the page.
        page.call("Network.setBlockedURLs", urls=["*fonts.googleapis.com*"])

        def read(report: Report, suffix: str) -> dict[str, Any]:
            path = folder / f"{len(files)}{suffix}"
            report.save(path)
            files[f"/{path.name}"] = path.read_bytes()
            page.console.clear()
            url = f"{address}/index.html?{path.name}#profileURL={address}/{path.name}"
            page.call("Page.navigate", url=url)
            page.wait(
                f"location.search == '?{path.name}' && ({_FAILED} || ({_SAVE}, window.saved))"
            )
            assert not page.run(_FAILED), page.console
            odd = [line for line in page.console if "Tried to" in line or "still open" in line]
            assert odd == []
            return dict(json.loads(page.run("window.saved.text()")))

        yield read


def stacks(file: dict[str, Any]) -> dict[tuple[str, ...], int]:
    """Return weights by stack, over all profiles."""
    total: Counter[tuple[str, ...]] = Counter()
    for profile in file["profiles"]:
        total.update(replay_events(profile, file["shared"]["frames"]))
    return dict(total)


def hostile_run() -> Snapshot:
    """Return functions and sections with every hostile name."""
    nodes = [
        Node(py(name, i, file=name), 1, 1000, [Node(section(name), 1, 10)])
        for i, name in enumerate(NAMES.values(), 1)
    ]
    return Builder().thread(*nodes).snapshot()


def test_a_speedscope_file_is_the_tree(read: Read) -> None:
    run = gpu_training_run()
    file = read(build_report(run), ".speedscope.json")
    assert stacks(file) == stacks_of(run, name)
    assert sum(stacks(file).values()) == sum(p["endValue"] for p in file["profiles"])
    assert [p["name"] for p in file["profiles"]] == [tree.name for tree in run.threads]
    assert {p["unit"] for p in file["profiles"]} == {"nanoseconds"}
    frames = {(f["name"], f.get("file"), f.get("line")) for f in file["shared"]["frames"]}
    assert {("train", "/x/train.py", 1), ("[forward]", None, None)} <= frames


def test_a_speedscope_file_by_gpu_time_is_all_gpu_time(read: Read) -> None:
    run = gpu_training_run()
    report = build_report(run)
    file = read(report, ".gpu.speedscope.json")
    expected = {tuple(frames): ns for frames, ns in gpu_stacks(report, "a test") if ns}
    assert stacks(file) == expected
    assert run.gpu is not None
    assert sum(stacks(file).values()) == run.gpu.sum_ns


def test_collapsed_stacks_are_the_tree(read: Read) -> None:
    run = gpu_training_run()
    assert stacks(read(build_report(run), ".collapsed")) == stacks_of(run, label)


def test_a_callgrind_file_has_a_profile_of_each_cost(read: Read) -> None:
    run = gpu_training_run()
    own, _ = graph(run)
    file = read(build_report(run), ".callgrind")
    assert len(file["profiles"]) == 2
    for i, profile in enumerate(file["profiles"]):
        found: Counter[str] = Counter()
        for path, ns in replay_events(profile, file["shared"]["frames"]).items():
            found[path[-1]] += ns
        assert found == {name: costs[i] for name, costs in own.items() if costs[i]}


@pytest.mark.parametrize("suffix", [".speedscope.json", ".collapsed", ".callgrind"])
def test_f43_hostile_names_change_no_total(read: Read, suffix: str) -> None:
    found = stacks(read(build_report(hostile_run()), suffix))
    assert sum(found.values()) == 1010 * len(NAMES)
    # The names stand beside each other, below the thread.
    assert {len(path) for path in found} == {2, 3}
    assert len(found) == 2 * len(NAMES)


@pytest.mark.parametrize("suffix", [".speedscope.json", ".collapsed"])
def test_f29_a_very_deep_tree_can_be_looked_at(read: Read, suffix: str) -> None:
    depth = 8 * MAX_DEPTH
    found = stacks(read(build_report(deep_tree(depth)), suffix))
    assert sum(found.values()) == 10 * depth
    assert max(map(len, found)) == MAX_DEPTH + 1


@pytest.mark.parametrize("made", [snapshot, back_to_back])
@pytest.mark.parametrize("suffix", [".trace.json", ".trace.json.gz"])
def test_a_trace_has_a_profile_of_each_track(
    read: Read, tmp_path: Path, made: Callable[[], Snapshot], suffix: str
) -> None:
    report = build_report(made())
    report.save(tmp_path / "x.trace.json")
    tracks = trace_kit.tracks(trace_kit.load(tmp_path / "x.trace.json"))
    file = read(report, suffix)
    assert len(file["profiles"]) == len(tracks)
    assert any("MainThread" in profile["name"] for profile in file["profiles"])
    for (pid, tid), profile in zip(sorted(tracks), file["profiles"], strict=True):
        assert f"pid {pid}" in profile["name"]
        assert f"tid {tid}" in profile["name"]
        assert profile["unit"] == "microseconds"
        assert spans(profile, file["shared"]["frames"]) == written(tracks[pid, tid])


def written(events: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    """Return (begin, end, name in speedscope) of each event, in ns after the first."""
    first = min(e["ts"] for e in events)
    return sorted(
        (round((e["ts"] - first) * 1000), round((e["ts"] + e["dur"] - first) * 1000), titled(e))
        for e in events
        if e["dur"]
    )


def titled(event: dict[str, Any]) -> str:
    args = event.get("args")
    return event["name"] + (f" {json.dumps(args, separators=(',', ':'))}" if args else "")


def spans(profile: dict[str, Any], frames: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    found, opened = [], []
    for event in profile["events"]:
        at = round(event["at"] * 1000)
        if event["type"] == "O":
            opened.append(at)
        else:
            found.append((opened.pop(), at, frames[event["frame"]]["name"]))
    return sorted(found)
