"""A run without steps keeps to its budget: functions are recorded in windows of time."""

import json
from typing import Any

import pytest

from tests.helpers import run_child

#: The look takes 1 s.  Then the program does other work, of which ``most`` is three quarters.
PROGRAM = """
import json, sys, time
import fastprof
from fastprof.capture.calibrate import CallCosts
from fastprof.session import time_windows
time_windows.LOOK_NS = 1_000_000_000
time_windows.WINDOW_NS = 50_000_000
# What calls cost here depends on the machine; a window is to cost 0.4 of its time.
time_windows._MOST_IDLE = 1.0
costs = [400_000_000]
CallCosts.of = lambda self, calls, cpu_ns: costs.pop() if costs else 20_000_000

def spin(n):
    total = 0
    for i in range(n):
        total += one(i)
    return total
def one(i):
    return i * 7 % 13
def first():
    spin(300)
def most():
    spin(900)
def rest():
    spin(300)

def until(seconds, *work):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for function in work:
            function()

prof = fastprof.Profiler(functions=True, gpu=False, log_every=None, overhead={overhead})
prof.start()
until(1.3, first)
until({seconds}, most, rest)
prof.stop()
report = prof.report()
rows = {{row.name: row.cum_ms for row in report.functions}}
callers = {{}}
for tree in report.view.threads:
    keys = [report.view.keys[k].name for k in tree.nodes.key]
    for i, above in enumerate(tree.nodes.parent):
        if keys[i] == "one":
            name = keys[tree.nodes.parent[above]]
            callers[name] = callers.get(name, 0) + tree.nodes.calls[i]
phases = {{p.name: [p.wall_ns / 1e6, p.entries] for p in report.snapshot.phases}}
whole = sum(sum(t.nodes.self_ns) for t in report.view.threads)
print(json.dumps([rows, callers, phases, report.wall_ms, whole / 1e6, list(report.notes)]))
"""


def child(**values: float) -> list[Any]:
    done = run_child(PROGRAM.format(**values), timeout=120).check()
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_functions_are_those_of_the_whole_time() -> None:
    rows, callers, phases, wall_ms, whole_ms, notes = child(overhead=0.1, seconds=6)
    assert phases["windows"][1] >= 3
    assert phases["unhooked"][0] > phases["windows"][0]
    # Without the hook's cost, which the time between windows does not have.
    assert whole_ms > 0.97 * wall_ms
    calls = callers["most"] + callers["rest"]
    assert callers["most"] / calls == pytest.approx(0.75, abs=0.03)
    # What ran in the full look stands for itself, windows for the rest; unscaled, it were 0.65.
    # The look's time has the hook's cost, and figures are without it: it has 0.14 or less.
    later = (rows["most"] + rows["rest"]) / rows["until"]
    assert 0.75 < later < 0.97
    assert any(note.startswith("Functions were recorded in ") for note in notes)


def test_without_a_bound_the_hook_stays() -> None:
    rows, _callers, phases, *_ = child(overhead=0.0, seconds=1)
    assert "unhooked" not in phases
    assert rows["most"]


#: Windows of 2 ms, many a second.
STRESS = """
import os, subprocess, sys, threading, warnings
warnings.simplefilter("error")  # CPython's warning of a fork beside a thread, too
import fastprof
from fastprof.capture.calibrate import CallCosts
from fastprof.clock import time
from fastprof.session import time_windows
time_windows.LOOK_NS, time_windows.WINDOW_NS = 20_000_000, 2_000_000
time_windows._MOST_IDLE = 1.0
CallCosts.of = lambda self, calls, cpu_ns: 10_000_000
prof = fastprof.Profiler(functions=True, gpu=False, log_every=None, overhead=0.3)
prof.start()
windows = prof._run.parts.of(time_windows.TimeWindows)

def down(n):
    return n and down(n - 1)
def numbers():
    for _ in range(20):
        yield down(3)
def work():
    for _ in range(50):
        list(numbers())
def other():
    while not over:
        work()
        time.sleep(0.001)

def theirs(frame, event, arg):
    seen[event] = True

over, seen, mode = [], {}, sys.argv[1]
threads = [threading.Thread(target=other) for _ in range(3 * (mode == "threads"))]
for thread in threads:
    thread.start()
# There are no more windows where the program's function has taken the hook.
end = time.monotonic() + (1 if mode == "hook" else 30)
while time.monotonic() < end and (mode == "hook" or windows._windows < 20):
    work()
    if mode == "forks":
        child = os.fork()
        if not child:
            work()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    if mode == "programs":
        subprocess.run(["true"], check=True)
    if mode == "hook":
        for hook in (theirs, None):
            sys.setprofile(hook)
            work()
            # A window may begin while there is no hook.
            assert hook is None or sys.getprofile() is hook
        work()
over.append(True)
if mode == "exec":
    os.execv(sys.executable, [sys.executable, "-c", "print('ended')"])
if mode == "_exit":
    os._exit(0)
for thread in threads:
    thread.join()
if mode == "steps":
    for _ in range(20):
        work()
        prof.step()
if mode != "exit":
    prof.stop()
    report = prof.report()
    print({phase.name for phase in report.snapshot.phases} >= {"unhooked", "windows"})
    print(report.steps.measured)
    print(any(row.name == "down" for row in report.functions))
"""


@pytest.mark.parametrize("mode", ["plain", "threads", "forks", "programs", "steps"])
def test_windows_disturb_nothing(mode: str) -> None:
    done = run_child(STRESS, mode).check()
    assert done.stdout.split() == ["True", "17" if mode == "steps" else "0", "True"]


@pytest.mark.parametrize("mode", ["exit", "_exit", "exec"])
def test_a_program_may_end_in_a_window(mode: str) -> None:
    assert run_child(STRESS, mode).check().stdout == ("ended\n" if mode == "exec" else "")


def test_a_profile_function_of_the_program_stays() -> None:
    """It is in the hook's place on 3.10 and 3.11: then fastprof records functions no more."""
    run_child(STRESS, "hook").check()


#: A time limit of the program comes while fastprof changes the hook, too.
SIGNALS = """
import signal, sys, time
import fastprof
from fastprof.capture.calibrate import CallCosts
from fastprof.session import time_windows
time_windows.LOOK_NS, time_windows.WINDOW_NS = 20_000_000, 2_000_000
time_windows._MOST_IDLE = 1.0
CallCosts.of = lambda self, calls, cpu_ns: 10_000_000

class Out(Exception):
    pass
def handler(*_):
    global sent, may_raise
    if may_raise:
        sent, may_raise = sent + 1, False
        raise Out
def audit(event, args):
    if event == "sys.setprofile" or event.endswith("register_callback") and args == (None,):
        signal.raise_signal(signal.SIGALRM)
def down(n):
    return n and down(n - 1)

sent = got = 0
may_raise = False
signal.signal(signal.SIGALRM, handler)
prof = fastprof.Profiler(functions=True, gpu=False, log_every=None, overhead=0.3)
prof.start()
windows = prof._run.parts.of(time_windows.TimeWindows)
end = time.monotonic() + 1
if sys.argv[1] == "audit":
    sys.addaudithook(audit)
else:
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
def part():
    global may_raise
    may_raise = True
    while time.monotonic() < end:
        down(20)
    may_raise = False
# An exception at the jump back of a loop within try would escape it.
while time.monotonic() < end:
    try:
        part()
    except Out:
        got += 1
# fastprof tries again a second after an exception.
before = windows._windows
while windows._windows < before + 3 and time.monotonic() < end + 30:
    down(20)
signal.setitimer(signal.ITIMER_REAL, 0)
prof.stop()
print(sent - got, any(p.name == "windows" for p in prof.report().snapshot.phases))
"""


@pytest.mark.parametrize("mode", ["timer", "audit"])
def test_exceptions_of_signal_handlers_reach_the_program(mode: str) -> None:
    assert run_child(SIGNALS, mode).check().stdout.split() == ["0", "True"]
