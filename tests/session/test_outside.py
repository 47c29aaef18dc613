"""A running process, asked from another one: ``fastprof report PID|DIR``, and its signal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from fastprof.cli import from_outside, main, watch_command
from fastprof.cli.watch_process import ProcessWatch, next_lines
from fastprof.session.outside import places
from fastprof.session.outside.ask import named
from fastprof.session.outside.places import Place, Process
from helpers import child_env, run_child, time_scale

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

#: Steps until a line comes, or the input ends.
LOOP = """
import os, select, signal, sys, time
import fastprof

def work():
    with fastprof.profile_section("forward"):
        time.sleep(0.002)

def loop(prof):
    while not select.select([sys.stdin], [], [], 0)[0]:
        work()
        prof.step()
"""
RUN = (
    LOOP
    + """
with fastprof.Profiler(**OPTIONS) as prof:
    print("ready", flush=True)
    loop(prof)
print("done", prof.steps)
"""
)

HANDLER = """
def handler(number, frame):
    print("mine", flush=True)

signal.signal(signal.SIGUSR1, handler)
with fastprof.Profiler(output="run.fprof") as prof:
    assert signal.getsignal(signal.SIGUSR1) is handler
    print("ready", flush=True)
    loop(prof)
"""


@pytest.fixture
def start(top, start_program):
    def start(code, *, options="", env=None, flags=()):
        whole = f"OPTIONS = dict({options})\n" + textwrap.dedent(code)
        return start_program(whole, child_env({places.VARIABLE: str(top), **(env or {})}), flags)

    return start


def end(child, status=0):
    """End its loop; return what it printed."""
    out, err = child.communicate("\n", timeout=60 * time_scale())
    assert child.returncode == status, err
    return out, err


def until(condition, limit_s=30.0):
    last = time.monotonic() + limit_s * time_scale()
    while not condition():
        assert time.monotonic() < last
        time.sleep(0.02)


def asked(capsys, name):
    """Return the status and the text of `fastprof report NAME`."""
    status = main(["report", str(name)])
    out, err = capsys.readouterr()
    return status, " ".join((out + err).split())


def test_a_running_process_shows_its_run_so_far_and_goes_on(start, top, capsys):
    child = start(RUN)
    status, text = asked(capsys, child.pid)
    assert status == 0, text
    first = int(re.match(r"program.py: (\d+) steps", text)[1])
    assert "forward" in text
    assert f"fastprof report {child.pid} --full" in text  # its file ends with the process
    status, text = asked(capsys, child.pid)
    assert int(re.match(r"program.py: (\d+) steps", text)[1]) > first
    out, err = end(child)
    assert out.startswith("done")
    assert err == ""
    assert list(top.iterdir()) == []


def test_the_folder_of_its_files_names_the_process(start, tmp_path, capsys):
    child = start(RUN, options="output='run.fprof'")
    status, text = asked(capsys, tmp_path)
    assert status == 0, text
    assert "forward" in text
    end(child)
    status, text = asked(capsys, tmp_path)  # its newest run
    assert status == 0, text


def test_nobody_else_may_enter_the_folders(start, top):
    start(RUN)
    modes = {path.name: path.stat().st_mode & 0o777 for path in [top, *top.rglob("*")]}
    assert len(modes) >= 4
    assert {mode & 0o077 for mode in modes.values()} == {0}, modes


def test_a_signal_writes_a_report_and_the_programs_handler_runs_too(start, tmp_path):
    child = start(LOOP + HANDLER, env={"FASTPROF_SIGNAL": "USR1"})
    os.kill(child.pid, signal.SIGUSR1)
    assert child.stdout.readline() == "mine\n"
    until((tmp_path / "now.fprof").exists)
    _, err = end(child)
    assert re.search(r"fastprof wrote the run so far \(\d+ steps?\) to .*now\.fprof", err), err
    assert main(["report", str(tmp_path / "now.fprof")]) == 0


def test_the_signal_ends_nothing_before_and_after_a_run(start):
    code = """
    import os, signal, sys
    import fastprof
    os.kill(os.getpid(), signal.SIGUSR2)
    with fastprof.Profiler() as prof:
        prof.step()
    os.kill(os.getpid(), signal.SIGUSR2)
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGUSR2)
        os._exit(0)
    print("ready", os.wait()[1], flush=True)
    """
    result = run_child(textwrap.dedent(code), env={"FASTPROF_SIGNAL": "USR2"}).check()
    assert result.stdout == "ready 0\n"


def test_a_handler_that_the_program_sets_later_takes_the_place_of_ours():
    code = """
    import os, signal
    import fastprof
    with fastprof.Profiler() as prof:
        signal.signal(signal.SIGUSR1, lambda *_: print("mine"))
        os.kill(os.getpid(), signal.SIGUSR1)
        prof.step()
    """
    result = run_child(textwrap.dedent(code), env={"FASTPROF_SIGNAL": "USR1"}).check()
    assert (result.stdout, result.stderr) == ("mine\n", "")


@pytest.mark.parametrize("value", ["KILL", "10", ","])
def test_another_value_of_the_variable_is_ignored_with_a_warning(value):
    result = run_child("import fastprof", env={"FASTPROF_SIGNAL": value}).check()
    assert "expected USR1 or USR2" in result.stderr


def test_fastprof_run_catches_the_signal_of_its_option(start, tmp_path, capsys):
    child = start(
        LOOP + "print('ready', flush=True)\nloop(fastprof.Profiler(enabled=False))\n",
        flags=("-m", "fastprof", "run", "--signal", "usr1", "-o", str(tmp_path / "out")),
    )
    os.kill(child.pid, signal.SIGUSR1)
    until((tmp_path / "out" / "now.fprof").exists)
    status, text = asked(capsys, tmp_path / "out")
    assert status == 0, text
    end(child)


def test_another_signal_is_refused(tmp_path, capfd):
    (tmp_path / "p.py").write_text("raise SystemExit(7)")
    assert main(["run", "--signal", "KILL", "-o", str(tmp_path / "o"), str(tmp_path / "p.py")]) == 2
    assert "--signal is 'KILL', expected USR1 or USR2" in capfd.readouterr().err


def test_a_thread_that_waits_in_c_code_is_no_obstacle(start, capsys):
    child = start(
        LOOP + "with fastprof.Profiler() as prof:\n    print('ready', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    status, text = asked(capsys, child.pid)
    assert status == 0, text
    end(child)


def test_code_that_keeps_the_lock_ends_in_one_sentence(start, capsys, monkeypatch):
    monkeypatch.setattr(from_outside, "_LIMIT_S", 1.0)
    child = start(
        LOOP + "import re\nwith fastprof.Profiler() as prof:\n    print('ready', flush=True)\n"
        "    re.match('(a+)+$', 'a' * 40 + 'b')\n"
    )
    status, text = asked(capsys, child.pid)
    assert status == 2
    assert f"process {child.pid} has not answered within 1 second: one long call of C code" in text
    assert child.poll() is None


def test_a_stopped_process_is_named_and_answers_when_it_goes_on(start, capsys):
    child = start(RUN)
    os.kill(child.pid, signal.SIGSTOP)
    status, text = asked(capsys, child.pid)
    assert status == 2
    assert f"process {child.pid} is stopped (state T)" in text
    assert f"`kill -CONT {child.pid}`" in text
    os.kill(child.pid, signal.SIGCONT)
    assert asked(capsys, child.pid)[0] == 0
    assert end(child)[1] == ""


def test_a_process_that_is_killed_meanwhile_is_named(start, capsys, monkeypatch):
    child = start(RUN)
    os.kill(child.pid, signal.SIGSTOP)
    send = from_outside.request

    def request(process, *args):
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        return send(process, *args)

    monkeypatch.setattr(from_outside, "request", request)
    status, text = asked(capsys, child.pid)
    assert status == 2
    assert f"process {child.pid} (program.py) has ended its run" in text


def test_two_who_ask_at_once_are_both_answered(start, top):
    child = start(RUN)
    command = [sys.executable, "-m", "fastprof", "report", str(child.pid)]
    env = child_env({places.VARIABLE: str(top)})
    both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for one in both:
        assert "program.py: " in one.communicate(timeout=60 * time_scale())[0]
        assert one.returncode == 0
    assert end(child)[1] == ""


def test_a_full_disk_is_the_answer(start, capsys):
    code = RUN.replace(
        "with fastprof.Profiler",
        """
import errno
from fastprof.session.outside import reach
def full(path):
    raise OSError(errno.ENOSPC, "No space left on device", path)
reach.atomic_write = full
with fastprof.Profiler""",
        1,
    )
    child = start(code)
    status, text = asked(capsys, child.pid)
    assert status == 2
    assert "could not make the report: OSError" in text
    assert "No space left on device" in text
    assert end(child)[1] == ""


def test_a_child_leaves_the_folder_to_its_parent(start, capsys):
    """Nor does the thread make Python warn of a fork (since 3.12)."""
    code = RUN.replace(
        "    loop(prof)",
        """
    for _ in range(3):
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
    loop(prof)""",
    )
    child = start(code, flags=("-W", "error"), options="gpu=False")
    status, text = asked(capsys, child.pid)
    assert status == 0, text
    assert end(child)[1] == ""


@pytest.mark.parametrize("fault", ["mode", "link", "file"])
def test_a_folder_that_others_may_enter_is_refused_by_both(fault, tmp_path, top, capsys):
    if fault == "mode":
        top.mkdir()
        top.chmod(0o755)
    elif fault == "link":
        (tmp_path / "other").mkdir(0o700)
        top.symlink_to(tmp_path / "other")
    else:
        top.write_text("")
    code = (
        "import fastprof\nwith fastprof.Profiler() as prof:\n    prof.step()\n"
        "print(prof.report().to_text(full=True))"
    )
    result = run_child(code, env={places.VARIABLE: str(top)}).check()
    assert "No other terminal could ask for a report" in " ".join(result.stdout.split())
    assert result.stderr == ""
    status, text = asked(capsys, os.getpid())
    assert status == 2
    assert str(top) in text
    assert places.VARIABLE in text or "no directory" in text


def test_a_process_that_records_nothing_is_named(top, capsys):
    status, text = asked(capsys, os.getpid())
    assert status == 2
    assert f"process {os.getpid()} has not announced itself" in text
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    status, text = asked(capsys, child.pid)
    assert status == 2
    assert f"there is no process {child.pid} here" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's process")
def test_a_process_of_another_user_is_named(top, capsys):
    with subprocess.Popen(["sleep", "60"], user=65534) as child:
        status, text = asked(capsys, child.pid)
        child.kill()
    assert status == 2
    assert f"process {child.pid} is another user's" in text


def test_the_switch_lets_a_process_announce_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(places.VARIABLE, "0")
    about = Process(1, 2, places.numbering(), "run", "p", "3", "1")
    assert places.announce(about) is None
    with pytest.raises(places.NoFolderError, match="is 0"):
        places.processes()


def test_folders_of_dead_processes_go_and_those_of_other_numberings_stay(top):
    here = places.numbering()
    for pid, space in ((1, "another"), (2, here)):
        Place(str(top), pid, 7).make(Process(pid, 7, space, "run", "p", "3", "1"))
    top.chmod(0o700)
    me = places.state_of(os.getpid())
    about = Process(os.getpid(), me[1], here, "run", "p", "3", "1")
    place = places.announce(about)
    assert sorted(path.name for path in top.iterdir()) == sorted(
        ["1-7", os.path.basename(place.folder)]
    )
    assert [process for process, _ in places.processes()] == [about]
    place.remove()
    assert places.processes() == []


@pytest.mark.parametrize(
    "value",
    [[], {}, {"pid": "1"}, {"pid": True}, {"pid": 1.0}, {"program": None}],
    ids=str,
)
def test_a_strange_description_is_none(value, top):
    place = Place(str(top), 1, 2)
    good = Process(1, 2, "", "run", "p", "3", "1")
    place.make(good)
    assert places.process_from(place.get(places.ABOUT)) == good
    known = json.loads(Path(place.path(places.ABOUT)).read_text())
    changed = value if isinstance(value, list) or not value else {**known, **value}
    Path(place.path(places.ABOUT)).write_text(json.dumps(changed))
    assert places.process_from(place.get(places.ABOUT)) is None


def test_names_that_are_no_requests_are_left_alone(top):
    place = Place(str(top), 1, 2)
    place.make(Process(1, 2, "", "run", "p", "3", "1"))
    good = "report-0123456789abcdef"
    for name in (good, "report-1", "../x-0123456789abcdef".replace("/", "_"), ".fastprof-1.tmp"):
        Path(place.path(places.REQUESTS, name)).touch()
    assert place.requests() == {good: "report"}


# -- fastprof watch PID ------------------------------------------------------------------------


def watched(capsys, *argv):
    status = main(["watch", *map(str, argv)])
    out, err = capsys.readouterr()
    return status, out + err


def test_watch_shows_a_process_once(start, top, capsys):
    child = start(RUN, options="overhead=0.0")
    until(lambda: main(["report", str(child.pid)]) == 0)
    time.sleep(1.0)
    capsys.readouterr()
    status, text = watched(capsys, child.pid, "--once")
    assert status == 0, text
    assert re.match(r"program.py \(process \d+, runs for [\d.]+ m?s\): \d+ steps, ", text)
    assert "step time  " in text
    assert re.search(r"^forward +[\d.]+ +[\d.]+$", text, re.MULTILINE)
    assert "work  program.py:6" in text
    assert re.search(r"^Memory: [\d.]+ MiB of the host\.$", text, re.MULTILINE)
    assert end(child)[1] == ""
    assert list(top.iterdir()) == []


def test_without_a_number_watch_lists_the_processes(start, capsys, monkeypatch):
    monkeypatch.delenv("FASTPROF_RANKS_DIR", raising=False)
    one, other = start(RUN), start(RUN)
    status, text = watched(capsys)
    assert status == 0
    rows = [line.split() for line in text.splitlines()]
    assert rows[0][:2] == ["process", "program"]
    assert {row[0] for row in rows[2:4]} == {str(one.pid), str(other.pid)}
    assert "no answer" not in text
    assert f"One of them: fastprof watch {rows[2][0]}" in text
    end(one)
    end(other)


def test_the_training_thread_makes_no_call_for_a_watcher(start, top):
    """Frames of fastprof's in it: none between steps, none of this part in steps."""
    code = (
        LOOP
        + """
import fastprof, os
found = []
def hook(frame, event, arg):
    file = frame.f_code.co_filename
    if event == "call" and f"{os.sep}fastprof{os.sep}" in file:
        found.append((file, frame.f_code.co_name))

def plain():
    return sum(range(50))

with fastprof.Profiler(functions=False, gpu=False, memory=False, log_every=0) as prof:
    for _ in range(5):
        work()
        prof.step()
    print("ready", flush=True)
    sys.setprofile(hook)
    while not select.select([sys.stdin], [], [], 0)[0]:
        plain()
    sys.stdin.readline()
    between = len(found)
    del found[:]
    print("steps", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        work()
        prof.step()
    sys.setprofile(None)
ours = [item for item in found if "outside" in item[0] and item[1] != "next_step"]
print(between, ours, bool(found))
"""
    )
    child = start(code)
    watch = ProcessWatch(*named(str(child.pid)))
    for _ in range(2):
        for _ in range(3):
            watch.ask()
            watch.wait(30.0)
        assert watch.seen().now.steps >= 5
        if child.stdin:
            child.stdin.write("\n")
            child.stdin.flush()
            line = child.stdout.readline()
            if line != "steps\n":
                break
    assert line == "0 [] True\n"


def test_two_watchers_of_one_process_get_their_answers(start):
    child = start(RUN)
    watches = [ProcessWatch(*named(str(child.pid))) for _ in range(2)]
    for _ in range(3):
        for watch in watches:
            watch.ask()
        for watch in watches:
            watch.wait(30.0)
    assert end(child)[1] == ""


def test_watch_ends_when_the_run_does(start, monkeypatch):
    monkeypatch.setattr(watch_command, "_EVERY_S", 0.01)
    child = start(RUN)
    pictures = []

    def show(lines):
        pictures.append(lines)
        if len(pictures) == 2:
            end(child)

    said = watch_command._loop_process(ProcessWatch(*named(str(child.pid))), show)
    assert said == f"Process {child.pid} (program.py) has ended its run."


def test_a_watcher_says_that_a_process_is_stopped(start):
    child = start(RUN)
    watch = ProcessWatch(*named(str(child.pid)))
    os.kill(child.pid, signal.SIGSTOP)
    text = " ".join(next_lines(watch, 80))
    assert f"Process {child.pid} is stopped (state T) and answers when it goes on" in text
    os.kill(child.pid, signal.SIGCONT)
    assert "is stopped" not in " ".join(next_lines(watch, 80))
    end(child)


def test_a_status_that_fails_is_named(start, capsys):
    code = RUN.replace(
        "with fastprof.Profiler",
        """
from fastprof.session.outside import status
def now(self):
    raise ZeroDivisionError("planted")
status.Status.now = now
with fastprof.Profiler""",
        1,
    )
    child = start(code)
    status, text = watched(capsys, child.pid, "--once")
    assert status == 2
    assert f"process {child.pid} has failed: ZeroDivisionError: planted" in " ".join(text.split())
    assert end(child)[1] == ""
