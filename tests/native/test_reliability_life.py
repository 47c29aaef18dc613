"""Failure modes of timers, threads, signals and exits (F14 to F30), on each backend.

The row numbers refer to the page on reliability.  Each test is a child process.
"""

from __future__ import annotations

import signal

import pytest
from helpers import need_running_threads
from hook_child import child, ok

TIMERS = {
    "steps back": "iter(range(10**6, 0, -1)).__next__",
    "stands still": "lambda: 1",
    "nan": "lambda: float('nan')",
    "infinite": "lambda: float('inf')",
    "huge": "lambda: 10**400",
    "raises": "lambda: 1 / 0",
    "returns a string": "lambda: 'x'",
    "returns nothing": "lambda: None",
    "calls profiled code": "lambda: calls(2) or 1.0",
    "disables": "lambda: prof.disable() or 1.0",
    "clears": "lambda: prof.clear() or 1.0",
    "enables": "lambda: prof.enable() or 1.0",
    "reads": "lambda: prof.getstats() and 1.0",
    "begins another": "lambda: new().enable() or 1.0",
    "drops": "lambda: globals().pop('prof', None) and 1.0 or 1.0",
    "interrupts": "lambda: (_ for _ in ()).throw(KeyboardInterrupt)",
}


def test_f14_any_timer(backend: str) -> None:
    """No crash, no hang, no exception in the program; faults are counted."""
    timers = ", ".join(f"{name!r}: lambda: {text}" for name, text in TIMERS.items())
    child(
        f"""
def record(name, unit, timer):
    global prof
    prof = keep = new(timer(), unit)
    prof.enable()
    calls(5)
    keep.disable()
    calls(5)
    table = rows(keep)
    assert table.get("f", 0) <= 5
    notes = " ".join(keep.report().notes)
    if name not in ("stands still", "calls profiled code", "drops", "begins another"):
        assert notes, "nothing is said about the timer"
    if name == "stands still":
        assert table["f"] == 5
    assert table.get("calls", 0) <= 1    # events inside the timer are dropped
    keep.clear()
    globals().pop("prof", None)
for name, timer in {{{timers}}}.items():
    print(name, file=sys.stderr)  # of a crash
    for unit in (0.0, 0.001):
        record(name, unit, timer)
    exact()
""",
        backend,
    ).check()


def test_f14_a_guarded_call_from_inside_the_timer_raises_there(backend: str) -> None:
    ok(
        """
errors = []
def timer():
    for method in ("enable", "disable", "clear", "getstats", "snapshot_stats"):
        try:
            getattr(prof, method)()
        except RuntimeError as error:
            errors.append((method, str(error)))
    return 1.0
prof = new(timer)
prof.enable()
calls(1)
prof.disable()
assert {method for method, _ in errors} == {
    "enable", "disable", "clear", "getstats", "snapshot_stats"}, errors
assert rows(prof)["f"] == 1
""",
        backend,
    )


@pytest.mark.parametrize("form", ["one profiler for all", "a profiler for each"])
def test_f17_threads_at_once(backend: str, form: str) -> None:
    need_running_threads(backend)
    ok(
        f"""
sys.setswitchinterval(1e-5)
SHARED = {form == "one profiler for all"}
barrier = threading.Barrier(8)
refused, tables = [], []
shared = new()
def work():
    barrier.wait()
    if SHARED:
        shared.enable()
        calls(500)
    else:
        mine = new()
        try:
            mine.enable()
        except fastprof.errors.BusyError:
            refused.append(mine)
            calls(500)
        else:
            calls(500)
            mine.disable()
            tables.append(rows(mine))
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
if SHARED:
    shared.disable()
    # Every thread's calls are counted from its own enable() at the latest.
    assert rows(shared)["f"] == 8 * 500, rows(shared)
else:
    assert len(refused) + len(tables) == 8 and tables
    for table in tables:
        assert table["f"] >= 500
sys.setswitchinterval(0.005)
""",
        backend,
    )


def test_f22_keyboard_interrupt_passes_and_figures_stay_sane(backend: str) -> None:
    ok(
        """
import signal
prof = new()
caught = 0
prof.enable()
while caught < 8:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        while True:
            calls(10)
    except KeyboardInterrupt:
        caught += 1
prof.disable()
table = rows(prof)
assert table["f"] > 0
assert table["calls"] * 10 >= table["f"] >= (table["calls"] - 8) * 10
""".replace(
            "prof = new()\n",
            "signal.signal(signal.SIGALRM, signal.default_int_handler)\nprof = new()\n",
            1,
        ),
        backend,
    )


@pytest.mark.parametrize("place", ["enable", "disable"])
def test_f22_keyboard_interrupt_in_threadings_functions_passes(place: str) -> None:
    """They are Python functions, in which a signal handler may run."""
    ok(
        f"""
theirs = threading.getprofile
def interrupted():
    threading.getprofile = theirs
    raise KeyboardInterrupt
prof = new()
if {place!r} == "disable":
    prof.enable()
threading.getprofile = interrupted
try:
    prof.{place}()
    for _ in range(100_000):
        pass
    raise AssertionError("it is lost")
except KeyboardInterrupt:
    pass
prof.disable()
""",
        "setprofile",
    )


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("raise ValueError", 1),
        ("threading.Thread(target=forever, daemon=True).start(); time.sleep(0.02)", 0),
        ("class Last:\n    def __del__(self): calls(3)\nlast = Last(); last.me = last", 0),
        ("import atexit; atexit.register(calls, 5)", 0),
        ("import atexit; atexit.register(prof.disable)", 0),
        ("import atexit; atexit.register(prof.create_stats)", 0),
        ("import os; os._exit(4)", 4),
        ("g = (f() for _ in range(3)); next(g)", 0),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_f24_exit_while_enabled(backend: str, ending: str, status: int) -> None:
    result = child(
        f"""
def forever():
    while True:
        calls(10)
prof = new()
prof.enable()
calls(10)
{ending}
""",
        backend,
    )
    assert result.end != "hang", result.stderr
    assert result.returncode == status, result.stderr
    assert "Fatal" not in result.stderr


def test_f25_dropped_while_enabled(backend: str) -> None:
    ok(
        """
import weakref
class Mine(fastprof.Profile):
    pass
for i in range(20):
    prof = new() if i % 2 else Mine(backend=BACKEND)
    prof.enable()
    calls(5)
    if i % 4 >= 2:
        prof.me = prof           # part of a cycle
        prof.stats = {"x": prof}
    ref = weakref.ref(prof)
    del prof
    gc.collect()
    assert ref() is None, i
    calls(5)
""",
        backend,
    )


def test_f28_generators_closed_by_the_collector(backend: str) -> None:
    ok(
        """
def numbers():
    try:
        for i in itertools.count():
            yield i
    finally:
        f()
def suspended(n):
    made = []
    for _ in range(n):
        cell = [numbers()]
        next(cell[0])
        cell.append(cell)
    return made
prof = new()
prof.enable()
suspended(200)
gc.collect()
calls(10)
prof.disable()
table = rows(prof)
assert table["f"] == 210, table
[row] = [r for r in prof.report().functions if r.name == "numbers"]
assert row.calls == 200
prof.clear()
gc.disable()
prof.enable()
suspended(200)
prof.disable()
gc.collect()
assert rows(prof).get("f", 0) == 0
""",
        backend,
    )


def test_f30_recursion_errors(backend: str) -> None:
    ok(
        """
def endless():
    endless()
prof = new()
for _ in range(20):
    prof.enable()
    try:
        endless()
    except RecursionError:
        pass
    else:
        raise AssertionError
    finally:
        prof.disable()
table = rows(prof)
assert table["endless"] > 20
prof.clear()
prof.enable(); calls(100); prof.disable()
assert rows(prof)["f"] == 100
""",
        backend,
    )
