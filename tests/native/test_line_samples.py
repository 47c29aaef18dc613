"""Samples of lines: right, bounded, and without effect on the program."""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fastprof._core import Recorder
from fastprof.snapshot.run_phases import RUN_PHASES
from helpers import FREE_THREADED, check_patiently, run_child, sanitized, time_scale
from nvtx_kit import compile_c

pytestmark = [
    pytest.mark.skipif(FREE_THREADED, reason="lines are not sampled there"),
    pytest.mark.skipif(sys.platform != "linux", reason="lines are sampled on Linux"),
]

Rows = Sequence[tuple[str, int, str, int, int]]
MS = 1_000_000
#: Samples of a recording, and the largest error of a share, of which 0.08 is three standard errors
#: and the rest what a busy machine adds.
SAMPLES, ERROR = 300, 0.12


def work(spent: list[float]) -> None:
    clock = time.perf_counter
    began = clock()
    for _ in range(40_000): pass  # fmt: skip  # noqa: E701
    first = clock()
    for _ in range(7_500): pass  # fmt: skip  # noqa: E701
    second = clock()
    for _ in range(2_500): pass  # fmt: skip  # noqa: E701
    ended = clock()
    spent[0] += first - began
    spent[1] += second - first
    spent[2] += ended - second


SPLIT = [work.__code__.co_firstlineno + n for n in (3, 5, 7)]


def sampled(backend: str, function: Callable[[], object], ms: int = 60_000) -> Rows:
    """Return the rows of the lines while ``function`` runs again and again."""
    recorder = Recorder(backend=backend)
    recorder.enable()
    try:
        assert recorder.begin_lines(MS, ms * MS, SAMPLES)
        until = time.monotonic() + 60 * time_scale()
        rows = None
        while rows is None and time.monotonic() < until:
            for _ in range(10):
                function()
            rows = recorder.take_lines(False)
        assert rows is not None
        return rows
    finally:
        recorder.disable()
        recorder.take_lines(True)


def shares(rows: Rows, name: str) -> dict[int, float]:
    lines: dict[int, int] = {}
    for _, _, function, line, samples in rows:
        if function == name:
            lines[line] = lines.get(line, 0) + samples
    return {line: n / sum(lines.values()) for line, n in lines.items()}


def check_split(made: tuple[Rows, list[float]]) -> None:
    rows, spent = made
    found = shares(rows, "work")
    assert sum(n for *_, name, _, n in rows if name == "work") >= SAMPLES / 2
    for line, took in zip(SPLIT, spent, strict=True):
        assert found.get(line, 0.0) == pytest.approx(took / sum(spent), abs=ERROR)


def test_lines_have_their_share_of_the_time(backend: str) -> None:
    def record(_: int) -> tuple[Rows, list[float]]:
        spent = [0.0, 0.0, 0.0]
        return sampled(backend, lambda: work(spent)), spent

    check_patiently(check_split, record)


def test_lines_of_a_training_thread(backend: str) -> None:
    def record(_: int) -> tuple[Rows, list[float]]:
        spent = [0.0, 0.0, 0.0]
        made: list[Rows] = []
        thread = threading.Thread(
            target=lambda: made.append(sampled(backend, lambda: work(spent))), daemon=True
        )
        thread.start()
        thread.join(120 * time_scale())
        return made[0], spent

    check_patiently(check_split, record)


def recursive(depth: int) -> int:
    if depth:
        return 1 + recursive(depth - 1)
    return sum(range(3_000))


def steps() -> None:
    def produce():  # type: ignore[no-untyped-def]
        for _ in range(5):
            yield recursive(30)

    sum(produce())


def test_a_function_counts_once_per_sample_at_its_innermost_call(backend: str) -> None:
    rows = sampled(backend, steps)
    count = {name: sum(n for *_, f, _, n in rows if f == name) for name in ("steps", "recursive")}
    # A sample that is taken while the stack changes may lack callers: on a busy machine one in six
    # did.  A function that counted once per call would count 30 times.
    assert 0 < count["recursive"] <= 1.5 * count["steps"] <= 1.5 * SAMPLES
    # Generators are part of the stack, and callers are at the lines of their calls.
    first = steps.__code__.co_firstlineno
    assert shares(rows, "produce").get(first + 3, 0.0) > 0.5
    assert shares(rows, "steps").get(first + 5, 0.0) > 0.5


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_no_thread_is_left_after_a_window() -> None:
    before = threads()
    recorder = Recorder()
    recorder.enable()
    for _ in range(20):
        assert recorder.begin_lines(MS, 60_000 * MS, 100_000)
        assert not recorder.begin_lines(MS, 60_000 * MS, 100_000)
        assert recorder.take_lines(False) is None
        assert recorder.take_lines(True) is not None
    recorder.disable()
    assert recorder.take_lines(True) == []
    until = time.monotonic() + 10 * time_scale()
    while threads() > before and time.monotonic() < until:
        time.sleep(0.001)  # the kernel removes a joined thread a moment later
    assert threads() <= before


def test_it_ends_at_its_limits() -> None:
    recorder = Recorder()
    recorder.enable()
    for limit_ms, most in ((1, 100_000), (60_000, 1)):
        assert recorder.begin_lines(MS, limit_ms * MS, most)
        until = time.monotonic() + 30 * time_scale()
        while recorder.take_lines(False) is None:
            assert time.monotonic() < until
    recorder.disable()


def test_samples_outside_of_steps_do_not_count() -> None:
    recorder = Recorder(skip_steps=0)
    recorder.enable()
    recorder.set_phase(RUN_PHASES.index("validation"))
    assert recorder.begin_lines(MS, 60_000 * MS, 1)
    spent = [0.0, 0.0, 0.0]
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        work(spent)
    assert recorder.take_lines(False) is None
    recorder.set_phase(RUN_PHASES.index("steps"))
    until = time.monotonic() + 30 * time_scale()
    rows = None
    while rows is None and time.monotonic() < until:
        work(spent)
        rows = recorder.take_lines(False)
    recorder.disable()
    assert sum(n for *_, name, _, n in rows or () if name == "work") <= 1
    assert rows is not None


def test_cleared_or_freed_functions_are_not_named() -> None:
    recorder = Recorder()
    recorder.enable()
    assert recorder.begin_lines(MS, 60_000 * MS, 1000)
    recorder.clear()  # ends the window: the functions' objects go
    assert recorder.take_lines(True) == []
    assert recorder.begin_lines(MS, 60_000 * MS, 1000)
    recorder.disable()
    del recorder  # so does this
    other = Recorder()
    assert other.begin_lines(MS, 60_000 * MS, 1)
    assert other.take_lines(True) == []


@pytest.mark.parametrize("wrong", [(99_999, 1, 1), (MS, -1, 1), (MS, 1, 100_001)])
def test_wrong_limits_are_errors(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="begin_lines"):
        Recorder().begin_lines(*wrong)


def test_begin_keeps_no_object_alive() -> None:
    recorder = Recorder()

    def function() -> bool:
        return recorder.begin_lines(MS, 60_000 * MS, 1000)

    counts = []
    for _ in range(50):
        assert function()
        recorder.take_lines(True)
        counts.append(sys.getrefcount(function.__code__))
    assert counts[-1] == counts[9]  # the interpreter's own caches are filled


BUSY = """
import os, signal, sys, threading, time
from fastprof._core import Recorder

def busy(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(100))

recorder = Recorder(backend=sys.argv[1])
recorder.enable()
assert recorder.begin_lines(200_000, 60_000_000_000, 100_000)
busy(0.05)
"""


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("os._exit(4)", 4),
        ("raise SystemExit(5)", 5),
        ("1 / 0", 1),
        ("os.execv(sys.executable, [sys.executable, '-c', 'raise SystemExit(6)'])", 6),
        ("threading.Thread(target=busy, args=(0.1,)).start()", 0),
        ("recorder.clear()", 0),
    ],
)
def test_a_program_ends_in_a_window_as_it_would(backend: str, end: str, status: int) -> None:
    result = run_child(BUSY + end + "\n", backend)
    assert (result.end, result.returncode) == ("status" if status else "ok", status)
    assert result.stderr.count("Traceback") == (end == "1 / 0")


FORK = """
import json
found = []
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        assert recorder.take_lines(True) == []
        child = Recorder(backend=sys.argv[1])
        child.enable()
        assert child.begin_lines(200_000, 60_000_000_000, 100_000)
        busy(0.02)
        child.disable()
        assert child.take_lines(True) is not None
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    rows = recorder.take_lines(False)  # the fork has ended the window
    assert rows is not None
    found += rows
    assert recorder.begin_lines(200_000, 60_000_000_000, 100_000)
    busy(0.01)
assert any(row[2] == "busy" for row in found), found
"""


def test_a_fork_in_a_window(backend: str) -> None:
    # CPython warns of a fork beside other threads: fastprof's must not be one.
    run_child("import warnings; warnings.simplefilter('error')\n" + BUSY + FORK, backend).check()


# A thread that wakes another is slow: the moment between it and the wait for the other's end.
SLOW_FORK = """
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static _Thread_local int is_slow;

long
syscall(long number, ...)
{
    va_list list;
    va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    long done = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (is_slow && number == SYS_futex) {
        usleep(500000);
    }
    return done;
}

int
slow_fork(void)
{
    is_slow = 1;
    pid_t child = fork();
    if (child == 0) {
        _exit(7);
    }
    int status;
    return waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7;
}
"""

FORK_WITHOUT_GIL = """
import ctypes
forked = []
library = ctypes.CDLL(sys.argv[2])
thread = threading.Thread(target=lambda: forked.append(library.slow_fork()), daemon=True)
thread.start()
while recorder.take_lines(False) is None:
    time.sleep(0.001)
assert recorder.begin_lines(200_000, 600_000_000_000, 100_000)
thread.join(60)
assert forked == [1], forked  # it waited for another window's thread
assert recorder.take_lines(False) is None
recorder.take_lines(True)
"""


@pytest.mark.skipif(sanitized(), reason="a sanitizer is preloaded")
def test_a_fork_without_the_gil_at_the_end_of_a_window(backend: str, tmp_path: Path) -> None:
    source = tmp_path / "slow_fork.c"
    source.write_text(SLOW_FORK)
    library = compile_c(tmp_path / "slow_fork.so", source, "-shared", "-fPIC")
    run_child(
        BUSY + FORK_WITHOUT_GIL, backend, str(library), env={"LD_PRELOAD": str(library)}
    ).check()


FILTERED = (
    """
import ctypes, platform, struct
NUMBER = {"x86_64": 310, "aarch64": 270}[platform.machine()]  # of process_vm_readv
LOAD, EQUAL, RETURN, KILL, ALLOW = 0x20, 0x15, 0x06, 0x80000000, 0x7FFF0000
code = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, NUMBER), (RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW)]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filter))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()  # PR_SET_SECCOMP
"""
    + BUSY
    + """
busy(0.3)
assert any(row[2] == "busy" for row in recorder.take_lines(True))
"""
)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="number of a call")
def test_a_filter_of_system_calls_kills_nothing(backend: str) -> None:
    run_child(FILTERED, backend).check()


CLOSED = """
descriptors = len(os.listdir("/proc/self/fd"))
os.closerange(3, 100)
mine = [os.open(sys.executable, os.O_RDONLY) for _ in range(descriptors)]
busy(0.05)  # samples
recorder.take_lines(True)
for file in mine:
    os.fstat(file)  # it is still open
for _ in range(5):
    assert recorder.begin_lines(200_000, 60_000_000_000, 100_000)
    busy(0.01)
    recorder.take_lines(True)
assert len(os.listdir("/proc/self/fd")) == len(mine) + 4  # standard ones, and the folder
assert recorder.begin_lines(200_000, 60_000_000_000, 100_000)
if (pid := os.fork()) == 0:
    numbers = os.listdir("/proc/self/fd")[:-1]  # without that of the folder
    os._exit(any(os.readlink(f"/proc/self/fd/{n}").endswith("/mem") for n in numbers))
assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_program_that_closes_all_descriptors_in_a_window(backend: str) -> None:
    run_child(BUSY + CLOSED, backend).check()


THREAD_ENDS = """
recorder.take_lines(True)
for _ in range(50):
    thread = threading.Thread(
        target=lambda: recorder.begin_lines(100_000, 20_000_000, 100_000) and busy(0.001)
    )
    thread.start()
    thread.join()
    busy(0.005)  # samples of a thread that is gone
    for row in recorder.take_lines(True):
        assert row[0] == threading.__file__ or row[2] in ("busy", "<lambda>"), row
"""


def test_the_sampled_thread_ends_in_the_window(backend: str) -> None:
    run_child(BUSY + THREAD_ENDS, backend).check()


CHURN = """
recorder.take_lines(True)
assert recorder.begin_lines(100_000, 60_000_000_000, 100_000)
until = time.monotonic() + 0.5
number = 0
while time.monotonic() < until:
    # Functions come and go, deep stacks grow and are unmapped, and generators live elsewhere.
    number += 1
    space = {}
    exec(f"def f{number}(n):\\n    return n and 1 + f{number}(n - 1)", space)
    space[f"f{number}"](number % 400)
    sum(i for i in range(100))
    if number % 50 == 0:
        recorder.clear()
        recorder.begin_lines(100_000, 60_000_000_000, 100_000)
for row in recorder.take_lines(True):
    assert row[3] >= 1 and row[4] >= 1
"""


def test_frames_that_come_and_go(backend: str) -> None:
    run_child(BUSY + CHURN, backend).check()


WORKER = """
import sys, time
from fastprof.session.loaders.worker_side import WorkerInit, _WorkerRecording

def slow():
    for _ in range(20_000): pass
    for _ in range(500): pass

init = WorkerInit(None, sys.argv[1], 3, sys.argv[2], 1024, windows=True)
worker = _WorkerRecording(init, 0)
until = time.monotonic() + float(sys.argv[3])
while time.monotonic() < until and sum(worker._lines.found.values()) < 200:
    worker._fetch_begins()
    slow()
    worker._fetch_ended(2_000_000)
worker._finish()
"""


def test_a_slow_line_of_a_worker(backend: str, tmp_path: Path) -> None:
    run_child(WORKER, str(tmp_path), backend, str(30 * time_scale()), timeout=120)
    (path,) = tmp_path.glob("3-0-*.json")
    rows = json.loads(path.read_text())["lines"]
    found = shares([tuple(row) for row in rows], "slow")
    first = WORKER.split("\n").index("def slow():") + 1
    assert found.get(first + 1, 0.0) > 0.7
