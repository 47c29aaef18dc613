"""``FASTPROF=standby`` and ``fastprof attach``: a process that runs is recorded for a while."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import fastprof
import pytest
from fastprof.cli import attach_command, inject, main
from fastprof.session.outside import places
from fastprof.session.outside.ask import named, send
from helpers import child_env, run_child, time_scale

#: The folder of fastprof, which may be installed.
HERE = Path(fastprof.__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

LOOP = """
import os, select, signal, sys, threading, time

def work():
    total = 0
    for i in range(200):
        total += abs(i)
    return total

def state():
    return (sys.getprofile(), sys.gettrace(), threading.getprofile(), list(sys.meta_path),
            [signal.getsignal(n) for n in range(1, signal.NSIG)], len(sys.path))

def loop():
    while not select.select([sys.stdin], [], [], 0)[0]:
        work()
"""
STANDBY = (
    "import fastprof\n"
    + LOOP
    + """
before = state()
print("ready", flush=True)
loop()
print("same" if state() == before else (before, state()))
"""
)


@pytest.fixture
def start(top, start_program):
    def start(code, *, env=None):
        given = {places.VARIABLE: str(top), "FASTPROF": "standby"} if env is None else env
        return start_program(code, child_env(given, guard=env is None))

    return start


def end(child):
    out, err = child.communicate("\n", timeout=60 * time_scale())
    assert child.returncode == 0, err
    return out, err


def attached(capsys, pid, *argv, seconds="0.3"):
    status = main(["attach", str(pid), "--seconds", seconds, *argv])
    out, err = capsys.readouterr()
    return status, " ".join((out + err).split())


def test_a_process_in_standby_is_recorded_twice_and_is_as_before(start, top, tmp_path, capsys):
    child = start(STANDBY)
    for _ in range(2):
        status, text = attached(capsys, child.pid)
        assert status == 0, text
        assert f"Recording program.py (process {child.pid}) for 0.3 s." in text
        assert "work program.py:5" in text
        assert "Not saved: -o FILE.fprof keeps a recording." in text
    status, text = attached(capsys, child.pid, "-o", str(tmp_path / "kept.fprof"))
    assert status == 0, text
    assert "Not saved" not in text
    assert any(row.name == "work" for row in fastprof.load(tmp_path / "kept.fprof").functions)
    assert end(child) == ("same\n", "")
    assert list(top.iterdir()) == []


def test_a_process_in_standby_records_nothing(start, capsys):
    child = start(STANDBY)
    for command in (["report"], ["watch"]):
        assert main([*command, str(child.pid)]) == 2
        text = " ".join("".join(capsys.readouterr()).split())
        assert f"process {child.pid} is in standby and records nothing: `fastprof attach" in text
    assert main(["watch"]) == 0
    text = capsys.readouterr().out
    assert "in standby" in text
    assert f"to record for a while: fastprof attach {child.pid}" in text
    assert end(child) == ("same\n", "")


def test_standby_loads_no_profiler_and_costs_no_call():
    code = (
        "import sys, fastprof\nassert 'fastprof.session.profiler' not in sys.modules\n"
        "assert sys.getprofile() is None\nprint(fastprof.integrations.standby)"
    )
    assert "standby" in run_child(code, env={"FASTPROF": "standby"}).check().stdout


def test_of_two_at_once_the_second_is_refused(start, capsys):
    child = start(STANDBY)
    process, place = named(str(child.pid))
    first = send(process, place, places.ATTACH, {"seconds": 30.0})
    last = time.monotonic() + 30 * time_scale()
    while named(str(child.pid))[0].mode != places.RUN:
        assert time.monotonic() < last
        time.sleep(0.05)
    status, text = attached(capsys, child.pid)
    assert status == 2
    assert "another `fastprof attach` records this process now" in text
    send(process, place, places.DETACH, {"name": "attach-0"})  # another one
    assert place.get(places.ANSWERS, first) is None
    send(process, place, places.DETACH, {"name": first})  # the first one gives up
    while place.get(places.ANSWERS, first) is None:
        assert time.monotonic() < last
        time.sleep(0.05)
    status, text = attached(capsys, child.pid)
    assert status == 0, text
    assert end(child) == ("same\n", "")


def test_a_process_that_is_recorded_is_left_alone(start, capsys):
    code = (
        "import fastprof\n"
        + LOOP
        + """
with fastprof.Profiler():
    print("ready", flush=True)
    loop()
"""
    )
    child = start(code)
    status, text = attached(capsys, child.pid)
    assert status == 2
    assert f"process {child.pid} is recorded already: `fastprof report {child.pid}`" in text
    assert end(child)[1] == ""


def test_a_run_that_the_program_starts_ends_the_recording(start, capsys):
    code = (
        "import fastprof\n"
        + LOOP
        + """
print("ready", flush=True)
until = time.monotonic() + 60
from fastprof.session import current
while current.running() is None and time.monotonic() < until:
    work()
with fastprof.Profiler() as prof:
    prof.step()
    loop()
print(prof.steps)
"""
    )
    child = start(code)
    status, text = attached(capsys, child.pid, seconds="1")
    assert status == 0, text
    assert end(child) == ("1\n", "")


def test_a_program_that_ends_meanwhile_ends_as_it_would(start, capsys, monkeypatch):
    child = start(STANDBY)
    wait = attach_command.request

    def request(*args):
        time.sleep(0.2)
        child.stdin.write("\n")
        child.stdin.flush()
        return wait(*args)

    monkeypatch.setattr(attach_command, "request", request)
    status, text = attached(capsys, child.pid, seconds="30")
    assert status == 2
    assert f"process {child.pid} (program.py) has ended its run" in text
    assert end(child)[1] == ""


def test_a_stopped_program_is_named_and_is_not_recorded_later(start, capsys):
    child = start(STANDBY)
    os.kill(child.pid, signal.SIGSTOP)
    status, text = attached(capsys, child.pid)
    assert status == 2
    assert f"process {child.pid} is stopped (state T)" in text
    os.kill(child.pid, signal.SIGCONT)
    status, text = attached(capsys, child.pid)
    assert status == 0, text
    assert end(child) == ("same\n", "")


def test_a_child_process_is_not_recorded(start, capsys):
    code = STANDBY.replace(
        "loop()\nprint",
        """
if os.fork() == 0:
    time.sleep(1)
    sys.exit(0)
loop()
os.wait()
print""",
    )
    child = start(code)
    status, text = attached(capsys, child.pid)
    assert status == 0, text
    assert end(child) == ("same\n", "")


CYCLES = """
import gc, os, sys
from fastprof.integrations._torch.attached import Attached

def step(x):
    return (x * 1103515245 + 12345) % 2**31

def losses(n, attach):
    x, found = 1, []
    for i in range(n):
        recording = Attached() if attach else None
        if attach:
            recording.start()
        for _ in range(20):
            x = step(x)
        found.append(x)
        if attach:
            recording.stop()
            if i % 100 == 0:
                assert recording.snapshot().keys
        recording = None
    return found

def size():
    gc.collect()
    with open("/proc/self/statm") as stream:
        pages = int(stream.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))

n = int(sys.argv[1])
expected = losses(n, False)
losses(20, True)
before, files = size()
assert losses(n, True) == expected
after, files_after = size()
assert files_after == files, (files, files_after)
assert after - before < 8 + n * 0.004, (before, after)
assert sys.getprofile() is None
print("ok")
"""


def test_fifty_cycles_on_a_busy_loop_change_nothing(top):
    assert run_child(CYCLES, "50").check().stdout == "ok\n"


@pytest.mark.slow
def test_a_thousand_cycles_on_a_busy_loop_change_nothing(top):
    assert run_child(CYCLES, "1000", timeout=600).check().stdout == "ok\n"


@pytest.mark.slow
def test_forty_attaches_to_a_busy_loop_change_nothing(start, capsys):
    child = start(STANDBY)
    for _ in range(40):
        status, text = attached(capsys, child.pid, seconds="0.1")
        assert status == 0, text
    assert end(child) == ("same\n", "")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["x"], "PID is 'x', expected the number of a process"),
        (["-1"], "PID is '-1', expected the number"),
        (["1", "--seconds", "0"], "--seconds is 0, expected 0.1 to 86400"),
        (["1", "--seconds", "nan"], "--seconds is nan, expected 0.1 to 86400"),
        (["1", "-o", "x.txt"], "expected a name that ends with .fprof"),
    ],
)
def test_wrong_options_are_named(top, capsys, argv, expected):
    try:
        status = main(["attach", *argv])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert expected in " ".join(capsys.readouterr().err.split())


def test_the_version_of_a_process_is_known_by_its_files():
    assert inject.version_of(os.getpid()) == "{}.{}".format(*sys.version_info[:2])
    with subprocess.Popen(["sleep", "60"]) as other:
        assert inject.version_of(other.pid) is None
        other.kill()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="there it can be attached to")
def test_before_3_14_a_process_without_standby_is_refused_with_a_remedy(start, capsys):
    child = start(LOOP + "\nprint('ready', flush=True)\nloop()\n", env={})
    status, text = attached(capsys, child.pid)
    assert status == 2
    assert re.search(
        r"is one of Python 3\.\d+, which lets nobody in before 3\.14: start it with", text
    )
    assert "FASTPROF=standby" in text
    assert end(child) == ("", "")


def test_a_process_of_another_version_is_refused(start, top, capsys, monkeypatch):
    child = start(LOOP + "\nprint('ready', flush=True)\nloop()\n", env={})
    monkeypatch.setattr(inject, "version_of", lambda pid: "3.99")
    status, text = attached(capsys, child.pid)
    assert status == 2
    assert "is one of Python 3.99 and this is 3." in text
    assert end(child) == ("", "")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError(1, "Operation not permitted"), "CAP_SYS_PTRACE"),
        (RuntimeError("remote debugging is not enabled"), "-X disable_remote_debug"),
    ],
)
def test_what_the_system_refuses_has_a_remedy(start, capsys, monkeypatch, error, expected):
    child = start(LOOP + "\nprint('ready', flush=True)\nloop()\n", env={})

    def refuse(pid, script):
        raise error

    monkeypatch.setattr(sys, "remote_exec", refuse, raising=False)
    status, text = attached(capsys, child.pid)
    assert status == 2
    assert expected in text
    assert end(child) == ("", "")


needs_remote_exec = pytest.mark.skipif(
    not hasattr(sys, "remote_exec"), reason="sys.remote_exec is new in 3.14"
)
BARE = (
    LOOP
    + """
before = state()
print("ready", flush=True)
loop()
print("same" if state() == before else (before, state()))
"""
)


@needs_remote_exec
def test_a_process_that_knows_nothing_of_fastprof_is_recorded(start, top, capsys):
    child = start(BARE, env={})
    for _ in range(2):
        status, text = attached(capsys, child.pid, "--pythonpath", str(HERE))
        assert status == 0, text
        assert "work program.py:4" in text
    last = time.monotonic() + 30 * time_scale()
    while list(top.iterdir()):  # the second ends when its answer is read
        assert time.monotonic() < last
        time.sleep(0.05)
    assert end(child) == ("same\n", "")


@needs_remote_exec
def test_where_fastprof_cannot_be_imported_the_option_is_named(start, capsys, tmp_path):
    code = "import sys\nsys.modules['fastprof'] = None\n" + BARE
    child = start(code, env={})
    status, text = attached(capsys, child.pid)
    assert status == 2
    assert "--pythonpath names the folder that has the package fastprof" in text
    assert end(child) == ("same\n", "")
