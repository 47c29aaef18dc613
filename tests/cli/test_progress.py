"""The status line of ``fastprof run``."""

from __future__ import annotations

import io

import pytest
from fastprof.cli.progress import Progress
from helpers import run_child


def test_the_line_is_not_glued_to_a_bar_of_tqdm() -> None:
    tqdm = pytest.importorskip("tqdm")
    stream = io.StringIO()
    times = iter([0.0, 100.0])
    progress = Progress(stream, lambda: next(times))
    with tqdm.tqdm(total=10, file=stream) as bar:
        bar.update(3)
        bar.refresh()
        progress.log_metrics({}, 10)
        progress.log_metrics({}, 20)
        text = stream.getvalue()
    before, line, after = text.partition("fastprof: step 20")
    assert line
    assert before.endswith("\r")
    assert "\n" in after
    assert "30%" in after


def shown(stream, written, steps, *, every=100.0):
    times = iter(range(0, 1 << 20, int(every)))
    progress = Progress(stream, lambda: float(next(times)), lambda: next(written))
    for step in steps:
        progress.log_metrics({}, step)
    return stream.getvalue()


OVER = "\x1b[1A\x1b[2K"


def test_the_line_takes_the_place_of_the_last_one() -> None:
    text = shown(io.StringIO(), iter([10, 10, 20, 20, 30]), (0, 10, 20, 30))
    first, second, third, rest = text.split("\n")
    assert first.startswith("fastprof: step 10, ")
    assert second.startswith(f"{OVER}fastprof: step 20, ")
    assert third.startswith(f"{OVER}fastprof: step 30, ")
    assert rest == ""


@pytest.mark.parametrize("after", [11, None], ids=["printed", "a child process"])
def test_what_somebody_has_written_since_stays(after) -> None:
    text = shown(io.StringIO(), iter([10, after, 20]), (0, 10, 20))
    assert OVER not in text
    assert text.count("\n") == 2


def test_above_a_bar_of_tqdm_each_line_is_a_new_one() -> None:
    tqdm = pytest.importorskip("tqdm")
    stream = io.StringIO()
    with tqdm.tqdm(total=10, file=stream):
        text = shown(stream, iter([]), (0, 10, 20))
    assert OVER not in text
    assert text.count("fastprof: step") == 2


def test_above_bars_of_rich_the_line_is_one_of_theirs(monkeypatch) -> None:
    console = pytest.importorskip("rich.console")
    progress = pytest.importorskip("rich.progress")
    stream = io.StringIO()
    terminal = console.Console(file=stream, force_terminal=True, width=80)
    own = io.StringIO()
    with progress.Progress(console=terminal) as bars:
        bars.add_task("train", total=10)
        assert shown(own, iter([]), (0, 10)) == ""
    assert "fastprof: step 10" in stream.getvalue()


def test_what_the_process_writes_is_counted_and_children_make_it_unknown(tmp_path) -> None:
    code = """
import os, sys, time
from fastprof.cli.progress import written
before = written()
if before is None:  # no such count here
    print("ok"); sys.exit()
assert written() == before
os.write(1, b"")
os.write(2, b"x")
assert written() == before + 1
child = os.fork()
if child == 0:
    time.sleep(60)
assert written() is None
os.kill(child, 9)
os.wait()
assert written() is not None
print("ok")
"""
    assert run_child(code).check().stdout == "ok\n"
