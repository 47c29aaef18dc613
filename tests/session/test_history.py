"""The history of a real run, also of one that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from fastprof.results.saved import load
from fastprof.session.faults import Faults
from fastprof.session.history.part import History
from fastprof.snapshot.history import Change
from helpers import child_env, run_child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

BEGIN = """
import sys, time
import fastprof
from fastprof.session.history import part
from fastprof.session.output import files

part.SEGMENT_S = 0.3
files.SAVE_EVERY_S = 0.5

def fetch():
    return sum(range(2000))

def work():
    return sum(range(20000))

def step(prof):
    with fastprof.profile_section("data"):
        fetch()
    with fastprof.profile_section("forward"):
        work()
    prof.step()
"""
RUN = (
    BEGIN
    + """
with fastprof.Profiler(output=sys.argv[1]) as prof:
    ends = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < ends:
        step(prof)
"""
)


def test_the_segments_are_the_run(tmp_path) -> None:
    path = tmp_path / "run.fprof"
    run_child(RUN, str(path), "3").check()
    snapshot = load(path).snapshot
    history = snapshot.history
    assert history is not None
    segments = history.segments
    assert len(segments) >= 3
    assert [snapshot.keys[key].name for key in history.sections] == ["data", "forward"]
    assert segments[0].first == 0
    assert sum(one.steps for one in segments) == snapshot.steps.count
    # Each measured step that the series kept is in one segment.
    measured = snapshot.steps.measured
    assert sum(one.full.count for one in segments) >= min(measured, 4096) * 0.9
    names = {snapshot.keys[key].name for key in history.contexts.key}
    assert {"data", "forward", "work"} <= names
    assert all(one.rss_bytes and one.rss_bytes > 10**6 for one in segments)
    spent = [sum(one.spent.self_ns) + sum(one.idle_ns) for one in segments]
    for one, ns in zip(segments[1:], spent[1:], strict=True):
        assert ns <= 1.5 * sum(one.phases_ns) + 10**8


def test_a_killed_run_leaves_its_history(tmp_path) -> None:
    path = tmp_path / "run.fprof"
    child = subprocess.Popen(
        [sys.executable, "-c", RUN, str(path), "600"], env=child_env(), stderr=subprocess.PIPE
    )
    try:
        for _ in range(600):
            time.sleep(0.1)
            assert child.poll() is None
            if path.exists():
                history = load(path).snapshot.history
                if history is not None and len(history.segments) >= 2:
                    break
        else:
            raise AssertionError("no history was saved")
        os.kill(child.pid, signal.SIGKILL)
    finally:
        child.kill()
        child.communicate()
    history = load(path).snapshot.history
    assert history is not None
    assert len(history.segments) >= 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.fprof"]


def test_a_failure_ends_the_history_and_not_the_run(tmp_path) -> None:
    path = tmp_path / "run.fprof"
    broken = """
from fastprof.session.history import segments
def take(*_):
    raise ValueError("planted")
segments.Segments.take = take
"""
    head, tail = RUN.split("with fastprof.Profiler")
    code = f"{head}{broken}with fastprof.Profiler{tail}"
    run_child(code, str(path), "1.5").check()
    report = load(path)
    assert report.snapshot.history is None
    assert report.snapshot.counters["history_errors"] == 1
    assert any("no longer kept over time" in note and "planted" in note for note in report.notes)


def test_a_forked_child_keeps_none_and_the_parent_goes_on(tmp_path) -> None:
    path = tmp_path / "run.fprof"
    code = RUN.replace(
        "    while time",
        """    import os
    for _ in range(50):
        step(prof)
    time.sleep(0.7)
    pid = os.fork()
    if not pid:
        time.sleep(0.7)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    while time""",
    )
    run_child(code, str(path), "2").check()
    history = load(path).snapshot.history
    assert history is not None
    assert len(history.segments) >= 2


def test_the_end_of_the_run_waits_for_a_segment_that_is_being_made() -> None:
    taken: list[int] = []

    class Segments:
        segments = (None,)

        def take(self, fewest):
            taken.append(fewest)

    history = History(None, lambda: None, Faults())
    history._on, history._segments, history._watcher = True, Segments(), object()
    history._making.acquire()
    other = threading.Timer(0.05, history._making.release)
    other.start()
    history.end(100)
    other.join()
    assert taken == [1]


def test_long_steps_are_logged_also_if_the_means_of_all_steps_hide_them() -> None:
    """The means may be of steps with functions on one side, of those without on the other."""
    history = History(None, lambda: None, Faults())
    for kind in ("stalls", "shift", "validation"):
        history._say(Change(kind, 100, 10**9, 120, 110, f"{kind} of a test"))
    assert list(history.texts()) == ["stalls of a test"]


def test_each_run_of_a_process_has_its_history(tmp_path) -> None:
    code = (
        BEGIN
        + """
for path in sys.argv[1:]:
    with fastprof.Profiler(output=path, overhead=None) as prof:
        ends = time.monotonic() + 1.2
        while time.monotonic() < ends:
            step(prof)
"""
    )
    paths = [tmp_path / "a.fprof", tmp_path / "b.fprof"]
    run_child(code, *map(str, paths)).check()
    for path in paths:
        snapshot = load(path).snapshot
        segments = snapshot.history.segments
        assert segments[0].first == 0
        assert sum(one.steps for one in segments) == snapshot.steps.count
        # Without a budget all steps have functions: none of them counts twice.
        times = sum(one.full.count + one.plain.count for one in segments)
        assert times <= snapshot.steps.count
        assert all(sum(one.spent.self_ns) > 0 for one in segments)


@pytest.mark.slow
def test_a_planted_change_is_logged_and_reported_with_its_function(tmp_path) -> None:
    path = tmp_path / "run.fprof"
    code = """
import sys, time
import fastprof
from functools import partial
from fastprof.session.history import part, watcher as rules

part.SEGMENT_S = 0.1
rules.Watch = partial(rules.Watch, beyond=2.0)  # the machine's noise is not what is tested here

def decode(seconds):
    time.sleep(seconds)

def work():
    time.sleep(0.004)

values = []
with fastprof.Profiler(
    output=sys.argv[1], log_every=20, logger=lambda metrics, step: values.append(metrics)
) as prof:
    history = prof._run.parts.of(part.History)
    since = 0
    for i in range(2500):
        segments = history._segments
        watcher = history._watcher
        # The change is planted when steps are plain, since those of the full look are another
        # measure; or late, if the budget pays for functions in all steps.
        known = watcher is not None and watcher.knows and (watcher._plain or i > 1500)
        if known and not since:
            since = i
        with fastprof.profile_section("data"):
            decode(0.03 if since else 0.001)
        with fastprof.profile_section("forward"):
            work()
        prof.step()
        if segments is not None and segments.changes or since and i > since + 800:
            break
    for _ in range(25):
        prof.step()
print(since + 1)
name = "profile/train/step_ms_change_percent"
print([m[name] for m in values if name in m][-1])
"""
    result = run_child(code, str(path)).check()
    since, percent = result.stdout.split()
    (line,) = [line for line in result.stderr.splitlines() if "steps take" in line]
    assert "data +" in line
    assert "in decode (child.py:" in line
    (change,) = load(path).snapshot.history.changes
    assert change.text in line
    assert abs(change.first + 1 - int(since)) <= 60
    assert float(percent) > 100
    assert any(change.text in note for note in load(path).notes)
