"""Programs that replace what fastprof uses: clocks, open, the builtins."""

from __future__ import annotations

import os
import sys

import pytest
from helpers import run_child, run_command

CLOCKS = """
import time
def work(): return sum(i * i for i in range(1000))
for name in dir(time):
    if name.startswith(("time", "perf_", "monotonic", "thread_time", "process_", "sleep")):
        setattr(time, name, lambda *args: 0)
for _ in range(20): work()
"""

OPEN = """
import builtins, io, os
def work(): return sum(i * i for i in range(1000))
for _ in range(20): work()
def refuses(*args, **kwargs): raise AssertionError("no files in this test")
builtins.open = refuses
"""


@pytest.mark.parametrize("command", [["-m", "fastprof", "run", "-o"], ["-m", "fastprof", "-o"]])
@pytest.mark.parametrize("program", [CLOCKS, OPEN])
def test_f40_replaced_functions_do_not_lose_the_run(tmp_path, command, program):
    (tmp_path / "program.py").write_text(program)
    out = "out" if "run" in command else "out.fprof"
    result = run_command([sys.executable, *command, out, "program.py"], cwd=tmp_path).check()
    saved = tmp_path / out
    assert os.path.getsize(saved / "train_profile.fprof" if saved.is_dir() else saved) > 0
    assert "could not be written" not in result.stderr


def test_a_profiler_starts_and_stops_while_freezegun_stops_the_clocks():
    pytest.importorskip("freezegun")
    run_child(
        """
import fastprof, freezegun

with freezegun.freeze_time("2020-01-01"):
    prof = fastprof.Profiler()
    prof.start()
    for _ in range(5):
        with fastprof.profile_section("forward"):
            sum(range(1000))
        prof.step()
    prof.stop()
    assert prof.report().to_text()
assert prof.snapshot().steps.count == 5
"""
    ).check()


def test_calibration_ends_with_a_clock_that_stands_still(monkeypatch):
    from fastprof.capture import calibrate

    monkeypatch.setattr(calibrate, "_measured", {})
    monkeypatch.setattr(calibrate.time, "perf_counter_ns", lambda: 0)
    assert calibrate._measure_sections() == (0.0, 0.0, 0.0)
    rounds = []
    measure = calibrate._times_ns
    monkeypatch.setattr(calibrate, "_times_ns", lambda: rounds.append(1) or measure())
    # Each call that does not know the costs measures: no more than it must to see the clock.
    assert calibrate.calibration("setprofile") is calibrate.calibration("setprofile") is None
    assert len(rounds) == 2


def test_f40_a_disk_that_takes_one_file_loses_neither_that_nor_the_report(tmp_path):
    (tmp_path / "program.py").write_text(
        """
import errno
from fastprof.cli import run_command

def full(*args):
    raise OSError(errno.ENOSPC, "No space left on device")

def work(): return sum(i * i for i in range(1000))
for _ in range(20): work()
run_command._save_data = full
"""
    )
    command = [sys.executable, "-m", "fastprof", "run", "-o", "out", "program.py"]
    result = run_command(command, cwd=tmp_path).check()
    assert os.listdir(tmp_path / "out") == ["train_profile.fprof"]
    assert "work" in result.stdout
    assert "Wrote out: train_profile.fprof" in result.stdout
    assert result.stderr.count("could not be written") == 1


def test_the_end_of_a_run_leaves_out_what_takes_too_long(tmp_path):
    (tmp_path / "program.py").write_text(
        """
from fastprof.cli import run_command
def work(): return sum(i * i for i in range(1000))
for _ in range(20): work()
run_command._END_S = -1.0
"""
    )
    command = [sys.executable, "-m", "fastprof", "run", "-o", "out", "program.py"]
    result = run_command(command, cwd=tmp_path).check()
    assert os.listdir(tmp_path / "out") == ["train_profile.fprof"]
    assert "more than 5 s of CPU" in result.stdout
    assert "Wrote out: train_profile.fprof" in result.stdout
    assert "work" not in result.stdout
    command = [sys.executable, "-m", "fastprof", "report", "out", "-o", "x.stats"]
    run_command(command, cwd=tmp_path).check()
    assert (tmp_path / "x.stats").stat().st_size > 0


DELETED = """
import atexit, builtins, os, sys, threading
def work(): return sum(i * i for i in range(1000))
for _ in range(20): work()
get, leave, kill, exit_now = vars(builtins).get, sys.exit, os.kill, os._exit
atexit.register(lambda: os.write(1, b"none" if get("open") is None else b"there"))
class Last:
    def __del__(self, write=os.write):
        write(1, b" none" if get("print") is None else b" there")
last = Last()
"""


@pytest.mark.parametrize(
    ("command", "end"),
    [
        ("run -o out", "del builtins.open"),
        ("run -o out", "builtins.print = None"),
        ("run -o out", "builtins.print = lambda *a: None"),
        ("run -o out", "vars(builtins).clear()"),
        ("run -o out", "vars(builtins).clear()\nexit_now(3)"),
        ("run -o out", "vars(builtins).clear()\nkill(os.getpid(), 15)\nwhile True: pass"),
        ("-o out.fprof", "vars(builtins).clear()\nleave(3)"),
        ("-o out.fprof", "vars(builtins).clear()\nleave('why')"),
    ],
)
def test_f40_deleted_builtins_neither_lose_the_run_nor_change_its_end(tmp_path, command, end):
    (tmp_path / "program.py").write_text(DELETED + end)
    alone = run_command([sys.executable, "program.py"], cwd=tmp_path)
    result = run_command(
        [sys.executable, "-m", "fastprof", *command.split(), "program.py"], cwd=tmp_path
    )
    assert result.returncode == alone.returncode
    assert result.stdout.endswith(alone.stdout)
    # threading itself fails at the end; fastprof waits for threads before it.
    assert result.stderr == alone.stderr.partition("Exception ignored")[0]
    saved = tmp_path / command.split()[-1]
    assert os.path.getsize(saved / "train_profile.fprof" if saved.is_dir() else saved) > 0


IN_MID_RUN = """
import builtins, fastprof, sys, traceback
kept = dict(vars(builtins))
at, restore, KeyError_, all_errors = vars(builtins), vars(builtins).update, KeyError, BaseException
fail, text, section = [].append, traceback.format_exc, fastprof.profile_section
failures = fail.__self__
profiler = fastprof.Profiler(overhead=0.05)
step, loader, none = profiler.start().step, profiler.loader, None

def work():
    x = 0
    while x < 50:
        x += 1

def raises():
    raise KeyError_

def loop(name):
    for _ in (1,) * 20:
        with section("forward"):
            work()
        with section("of " + name):
            work()
        try:
            with section("backward"):
                raises()
        except KeyError_:
            pass
        step()
    for _ in loader([1, 2, 3] * 4, "main"):
        work()
        step()
    work.__doc__ = fastprof.step.__doc__

for _ in range(8):
    loop("the full look")
names = [n for n in kept if n not in ("None", "True", "False", "__debug__", "_")]
for name in names + [names]:
    at.update({n: none for n in names} if name is names else {name: none})
    try:
        loop(name if name is not names else "all")
    except all_errors:
        fail((name, text()))
    restore(kept)
assert not failures, "\\n".join(f"{name}: {error}" for name, error in failures)
assert step() > 32 * len(names)
profiler.stop()
assert profiler.report().to_text()
print("ok")
"""


def test_f40_builtins_replaced_in_mid_run_raise_nothing_into_the_program():
    assert run_child(IN_MID_RUN).check().stdout == "ok\n"


def test_code_that_a_function_profiler_runs_gets_the_programs_builtins():
    run_child(
        """
import builtins, fastprof
names = {}
fastprof.Profile().runctx("import math\\nmine = __builtins__", names, names)
assert names["mine"] is vars(builtins)
"""
    ).check()


@pytest.mark.parametrize("end", ["vars(builtins).clear()", "vars(builtins).clear()\nleave(3)"])
def test_f40_a_run_of_the_environment_ends_without_builtins(tmp_path, end):
    (tmp_path / "program.py").write_text(f"import fastprof{DELETED}{end}")
    command = [sys.executable, "program.py"]
    alone = run_command(command, cwd=tmp_path)
    result = run_command(command, cwd=tmp_path, env={"FASTPROF": "1"})
    assert (result.returncode, result.stdout) == (alone.returncode, alone.stdout)
    assert "your functions" in result.stderr
    assert result.stderr.count("Traceback") == alone.stderr.count("Traceback")
