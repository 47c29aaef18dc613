"""Windows of a run in which lines are sampled."""

from __future__ import annotations

import json
import sys

import pytest
from fastprof.session.line_samples import LineWindows, line_rows
from fastprof.snapshot.lines import LineSamples
from helpers import FREE_THREADED, run_child, time_scale
from unit.snapshots import py

sampled_here = pytest.mark.skipif(
    FREE_THREADED or sys.platform != "linux", reason="lines are not sampled there"
)

LOOP = """
import json, sys, threading, time
import fastprof
from fastprof.session import line_samples
from fastprof.session.line_samples import LineWindows

line_samples._SAMPLES, line_samples._REST = 100, 1

def slow():
    for _ in range(20_000): pass
    for _ in range(500): pass

prof = fastprof.Profiler()

def train():
    until = time.monotonic() + float(sys.argv[1])
    with prof:
        lines = prof._run.parts.of(LineWindows)
        def found():  # on a busy machine there may be more of a fork
            return sum(n for (_, _, name, _), n in lines.found.items() if name == "slow")
        while time.monotonic() < until and found() < 50:
            slow()
            if prof.step() % 50 == 0 and sys.argv[2] == "fork":
                import os
                if (pid := os.fork()) == 0:
                    os._exit(0)
                os.waitpid(pid, 0)

thread = threading.Thread(target=train)
thread.start()
thread.join()
snapshot = prof.snapshot()
names = {(snapshot.keys[row.key].name, row.line): row.samples for row in snapshot.lines}
print(json.dumps([[*at, n] for at, n in names.items()]))
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("Threads:")))
"""


@sampled_here
@pytest.mark.parametrize("how", ["quiet", "fork"])
def test_a_run_has_the_lines_of_its_training_thread(how: str) -> None:
    result = run_child(LOOP, str(30 * time_scale()), how, timeout=120).check()
    rows, threads = result.stdout.splitlines()
    samples = {line: n for name, line, n in json.loads(rows) if name == "slow"}
    first = LOOP.split("\n").index("def slow():") + 1
    assert samples[first + 1] / sum(samples.values()) > 0.7
    assert int(threads) == 1


class FakeRecorder:
    """A recorder whose windows end when ``over`` says so."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int, int]] = []
        self.over = False
        self.works = True

    def begin_lines(self, interval_ns: int, limit_ns: int, most: int) -> bool:
        self.begun.append((interval_ns, limit_ns, most))
        return self.works

    def take_lines(self, wait: bool) -> list[tuple[str, int, str, int, int]] | None:
        return [("/x/a.py", 3, "f", 5, 7)] if self.over or wait else None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [0]

    class Time:
        @staticmethod
        def perf_counter_ns() -> int:
            return now[0]

    monkeypatch.setattr("fastprof.session.line_samples.time", Time)
    return now


def steps(windows: LineWindows, clock: list[int], first: int, last: int, step_ns: int) -> None:
    for count in range(first, last + 1):
        clock[0] += step_ns
        if count >= windows.next_step(count):
            windows.at_step(count)


def test_windows_are_rare(clock: list[int]) -> None:
    recorder = FakeRecorder()
    windows = LineWindows(recorder, lambda: True, lambda first, last: False)  # type: ignore[arg-type]
    steps(windows, clock, 1, 3, 10_000_000)
    assert recorder.begun == [(1_000_000, 5_000_000_000, 1000)]
    assert not windows.found
    recorder.over = True
    steps(windows, clock, 4, 4, 10_000_000)
    assert windows.found == {("/x/a.py", 3, "f", 5): 7}
    began = len(recorder.begun)
    steps(windows, clock, 5, 20, 10_000_000)
    assert len(recorder.begun) == began  # 20 times the window's length have to pass
    steps(windows, clock, 21, 60, 10_000_000)
    assert len(recorder.begun) == began + 1
    windows.end()
    assert windows.found == {("/x/a.py", 3, "f", 5): 14}
    assert windows.next_step(0) == sys.maxsize


def test_a_window_spans_several_long_steps(clock: list[int]) -> None:
    recorder = FakeRecorder()
    windows = LineWindows(recorder, lambda: True, lambda first, last: False)  # type: ignore[arg-type]
    steps(windows, clock, 1, 2, 20_000_000_000)
    assert recorder.begun[0][0] * 1000 == 4 * 20_000_000_000


def test_no_window_begins_beside_torch_profiler_or_without_functions(clock: list[int]) -> None:
    recorder = FakeRecorder()
    windows = LineWindows(recorder, lambda: True, lambda first, last: first < 6)  # type: ignore[arg-type]
    steps(windows, clock, 1, 5, 10_000_000)
    assert not recorder.begun
    steps(windows, clock, 6, 7, 10_000_000)
    assert recorder.begun
    off = LineWindows(FakeRecorder(), lambda: False, lambda first, last: False)  # type: ignore[arg-type]
    assert off.next_step(0) == sys.maxsize


def test_where_lines_cannot_be_sampled_nobody_tries_again(clock: list[int]) -> None:
    recorder = FakeRecorder()
    recorder.works = False
    windows = LineWindows(recorder, lambda: True, lambda first, last: False)  # type: ignore[arg-type]
    steps(windows, clock, 1, 500, 10_000_000)
    assert len(recorder.begun) == 1


def test_rows_are_those_of_the_program() -> None:
    keys = [py("g", 9, "/usr/lib/python3/site-packages/x.py"), py("f", 3, "/x/a.py")]
    found = {("/x/a.py", 3, "f", 5): 7, ("/x/a.py", 3, "f", 4): 9, ("/x/b.py", 3, "f", 4): 1}
    library = {(keys[0].file, 9, "g", 10): 100, ("/x/a.py", 3, "f", 5): 1}
    assert line_rows(keys, [found, library]) == (LineSamples(1, 4, 9), LineSamples(1, 5, 8))
    assert line_rows(keys, []) is None
