"""A fork during an operation of fastprof (F19): the child can record itself.

Each test starts a child process and checks that child's own child.
"""

from __future__ import annotations

import os
import sys

import pytest
from helpers import FREE_THREADED, run_child
from hook_child import ok

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

#: Describing a key runs `in_the_middle`, in the middle of an export.
EXPORT = """
import os, warnings
warnings.simplefilter("ignore")
from fastprof._core import Recorder, profile_section
in_the_middle = None
class Outer(type):
    def __getattribute__(cls, name):
        if in_the_middle:
            in_the_middle()
        return type.__getattribute__(cls, name)
class Meta(type, metaclass=Outer):
    pass
# The export looks the method's name up in the class of the class.
fromkeys = Meta("Kind", (dict,), {}).fromkeys
def work():
    fromkeys([1])
def record(r, steps):
    r.start_sections(); r.mark(); r.enable()
    for _ in range(steps):
        with profile_section("part"):
            work()
        r.step()
def check_child(r):
    r.disable(); r.stop_sections()
    r.clear()
    record(r, 5)
    r.trace_open(); work(); r.trace_close()
    r.disable(); r.stop_sections()
    data = r.export(trace=True)
    assert data["steps"]["count"] == 5
    assert data["trace"]["events"] is not None
    r.__init__(backend=BACKEND)
    os._exit(0)
r = Recorder(backend=BACKEND, outliers=3)
record(r, 20)
"""


@pytest.mark.parametrize("recording", [True, False])
def test_f19_a_fork_while_another_thread_exports(backend: str, recording: bool) -> None:
    code = f"""
if not {recording}:
    r.disable(); r.stop_sections()
inside, go = threading.Event(), threading.Event()
def wait():
    inside.set()
    go.wait()
in_the_middle = wait
kept = []
thread = threading.Thread(target=lambda: kept.append(r.export(trace=True)))
thread.start()
inside.wait()
pid = os.fork()
in_the_middle = None
if pid == 0:
    check_child(r)
go.set()
thread.join()
assert os.waitpid(pid, 0)[1] == 0
assert kept[0]["steps"]["count"] == 20
r.disable(); r.stop_sections()
r.clear()
"""
    ok(EXPORT + code, backend)


@pytest.mark.parametrize("recording", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_f19_a_fork_in_the_middle_of_an_export(backend: str, recording: bool, again: bool) -> None:
    code = f"""
pid = None
def fork():
    global in_the_middle, pid
    in_the_middle = None
    pid = os.fork()
    if pid == 0 and {again}:
        # What is being read must stay until it has been read.
        try:
            r.clear()
        except RuntimeError:
            r.enable()
            work()
            r.disable()
        else:
            os._exit(1)
if not {recording}:
    r.disable(); r.stop_sections()
in_the_middle = fork
data = r.export(trace=True)
assert data["steps"]["count"] == 20
if pid == 0:
    assert (r.steps == 0) == {recording}, r.steps  # of a recording it is the parent's alone
    check_child(r)
assert os.waitpid(pid, 0)[1] == 0
r.disable(); r.stop_sections()
r.clear()
"""
    ok(EXPORT + code, backend)


def test_f19_a_fork_in_the_middle_of_the_timer(backend: str) -> None:
    ok(
        """
import os, warnings
warnings.simplefilter("ignore")
pid, fork_next = None, False
def timer():
    global pid, fork_next
    if fork_next:
        fork_next = False
        pid = os.fork()
    return time.perf_counter()
prof = new(timer)
prof.enable()
calls(3)
fork_next = True
calls(3)
prof.disable()
if pid == 0:
    prof.clear()
    prof.enable()
    calls(4)
    prof.disable()
    os._exit(rows(prof)["f"] != 4)
assert os.waitpid(pid, 0)[1] == 0
assert rows(prof)["f"] == 6
""",
        backend,
    )


AUDITED = """
import os, warnings
warnings.simplefilter("ignore")
EVENT = "sys.monitoring.register_callback" if MONITORING else "sys.setprofile"
audit = None
def hook(event, args):
    if audit and event == EVENT:
        audit()
sys.addaudithook(hook)
"""


@pytest.mark.skipif(FREE_THREADED, reason="a child keeps the hook until it records or ends")
@pytest.mark.parametrize("method", ["enable", "disable"])
def test_f19_a_fork_while_this_thread_sets_the_hook(backend: str, method: str) -> None:
    code = f"""
pid = None
def fork():
    global audit, pid
    audit = None
    pid = os.fork()
prof = new()
if {method!r} == "disable":
    prof.enable()
    calls(3)
audit = fork
prof.{method}()
if pid == 0:
    calls(2)
    assert sys.getprofile() is None
    if MONITORING:
        assert not any(map(sys.monitoring.get_tool, range(6)))
    exact()
    prof.clear()
    prof.enable()
    calls(4)
    prof.disable()
    os._exit(rows(prof)["f"] != 4)
assert os.waitpid(pid, 0)[1] == 0
calls(3)
prof.disable()
assert rows(prof)["f"] == 3
"""
    ok(AUDITED + code, backend)


def test_f4_a_start_that_fails_does_not_undo_the_next(backend: str) -> None:
    """disable() during a start affects only that start."""
    code = """
def refuse():
    prof.disable()
    raise RuntimeError("not now")
prof = new()
audit = refuse
try:
    prof.enable()
except RuntimeError:
    pass
else:
    raise AssertionError("not refused")
audit = None
prof.enable()
calls(3)
prof.disable()
assert rows(prof)["f"] == 3
"""
    ok(AUDITED + code, backend)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is for Linux")
def test_a_forked_child_that_profiles_has_a_limit_of_its_own_for_sigterm() -> None:
    """It had the number of a timer that is the parent's."""
    run_child(
        """
import ctypes, os, signal, time
from fastprof import _core
lib = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
lib.pthread_mutex_lock(mutex)

def handled():
    carrier = signal.SIGRTMAX - 1
    signal.signal(carrier, lambda number, frame: _core.end_signal_taken())
    assert _core.handle_end_signals(carrier)

handled()
child = os.fork()
if not child:
    _core.leave_end_signals()
    handled()
    lib.pthread_mutex_lock(mutex)
    os._exit(7)
time.sleep(1)
os.kill(child, signal.SIGTERM)
for _ in range(300):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        break
    time.sleep(0.1)
else:
    os.kill(child, signal.SIGKILL)
    raise SystemExit("it waits for ever")
assert status == signal.SIGTERM, status
"""
    ).check()


@pytest.mark.skipif(sys.platform != "linux", reason="handles SIGTERM on Linux only")
def test_sigterm_ends_a_forked_child_that_still_has_the_handler() -> None:
    """Python forgets signals from before a child is ready, and a pool waited for ever."""
    run_child(
        """
import os, signal, time
from fastprof import _core
carrier = signal.SIGRTMAX - 1
signal.signal(carrier, lambda number, frame: None)
assert _core.handle_end_signals(carrier)
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)
    os._exit(7)
assert os.waitpid(child, 0)[1] == signal.SIGTERM
"""
    ).check()
