"""Signals and ``os.exec*`` end a profiled program as without fastprof, after it was saved."""

from __future__ import annotations

import io
import os
import pstats
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.capture import end_signal
from fastprof.cli import exit_hooks
from helpers import ChildResult, child_env, run_command, time_scale

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
ENV = {"PYTHONPATH": os.pathsep.join(filter(None, [SOURCE_PATH, os.environ.get("PYTHONPATH")]))}
WORK = """
import os, resource, signal, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
def work():
    return sum(range(10))
def later():
    return 1
for _ in range(5): work()
"""
ENDINGS = ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGQUIT"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals are handled on Linux only")


def python(*args: object, cwd: Path) -> ChildResult:
    return run_command([sys.executable, *map(str, args)], cwd=cwd, env=ENV)


def profiled(text: str, cwd: Path) -> ChildResult:
    write(text, cwd)
    return python("-m", "fastprof", "-o", "p.stats", "train.py", cwd=cwd)


def write(text: str, cwd: Path) -> None:
    (cwd / "train.py").write_text(WORK + textwrap.dedent(text))


def calls(cwd: Path, name: str = "work", file: str = "p.stats") -> int:
    stats: Any = pstats.Stats(str(cwd / file), stream=io.StringIO())
    return sum(row[1] for label, row in stats.stats.items() if label[2] == name)


@pytest.mark.parametrize("name", ENDINGS)
def test_f22_a_signal_that_ends_the_program_saves_first(tmp_path: Path, name: str) -> None:
    result = profiled(f"os.kill(os.getpid(), signal.{name})\nwhile True: pass\n", tmp_path)
    assert result.returncode == -getattr(signal, name)
    assert (result.stdout, result.stderr) == ("", "")
    assert calls(tmp_path) == 5


@pytest.mark.parametrize("name", ENDINGS)
def test_the_screen_says_which_signal_ended_the_program(tmp_path: Path, name: str) -> None:
    write(f"os.kill(os.getpid(), signal.{name})\nwhile True: pass\n", tmp_path)
    result = python("-m", "fastprof", "run", "-o", "out", "train.py", name, cwd=tmp_path)
    assert result.returncode == -getattr(signal, name)
    headline = " ".join(result.stdout.partition("\n\n")[0].split())
    assert headline.startswith(f"train.py {name}: "), result.stdout
    assert headline.endswith(f", ended by {name}"), result.stdout


def test_f22_a_closed_terminal_ends_a_run_which_is_saved(tmp_path: Path) -> None:
    write("print('ready', flush=True)\nwhile True: pass\n", tmp_path)
    ours, theirs = os.openpty()
    # The program's session gets the terminal, and SIGHUP when its other end closes.
    code = (
        "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", code, "-m", "fastprof", "run", "-o", "out", "train.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=child_env(ENV, guard=False), stdin=theirs, stdout=theirs,
        stderr=theirs,
    ) as process:  # fmt: skip
        try:
            os.close(theirs)
            seen = b""
            while b"ready" not in seen:
                seen += os.read(ours, 1000)
            os.close(ours)
            assert process.wait(60 * time_scale()) == -signal.SIGHUP
        finally:
            process.kill()
    assert calls(tmp_path, file="out/train_profile.stats") == 5


def test_f22_the_program_finds_the_default_action_of_each(tmp_path: Path) -> None:
    text = "print([signal.getsignal(n) for n in range(1, signal.SIGRTMAX - 1)])\n"
    result = profiled(text, tmp_path).check()
    assert result.stdout == python("train.py", cwd=tmp_path).check().stdout


@pytest.mark.parametrize("name", ENDINGS)
def test_f22_the_programs_own_action_is_the_one(tmp_path: Path, name: str) -> None:
    text = f"""
    number = signal.{name}
    signal.signal(number, lambda *a: print("mine"))
    os.kill(os.getpid(), number)
    signal.signal(number, signal.SIG_IGN)
    os.kill(os.getpid(), number)
    later()
    signal.signal(number, lambda *a: sys.exit(4))
    os.kill(os.getpid(), number)
    """
    result = profiled(text, tmp_path).check(returncode=4)
    assert result.stdout == "mine\n"
    assert calls(tmp_path, "later") == 1


def test_f22_signals_that_were_ignored_at_the_start_stay_ignored(tmp_path: Path) -> None:
    write("for n in (1, 3, 10, 12): os.kill(os.getpid(), n)\nlater()\n", tmp_path)
    command = f"trap '' HUP QUIT USR1 USR2; exec {sys.executable} -m fastprof -o p.stats train.py"
    run_command(["sh", "-c", command], cwd=tmp_path, env=ENV).check()
    assert calls(tmp_path, "later") == 1


def test_f22_faulthandler_of_the_program_is_the_one(tmp_path: Path) -> None:
    text = """
    import faulthandler
    faulthandler.register(signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR1)
    later()
    faulthandler.unregister(signal.SIGUSR1)
    faulthandler.register(signal.SIGUSR1, chain=True)
    os.kill(os.getpid(), signal.SIGUSR1)
    while True: pass
    """
    result = profiled(text, tmp_path)
    assert result.returncode == -signal.SIGUSR1
    assert result.stderr.count("most recent call first") == 2
    assert calls(tmp_path, "later") == 1


def test_f22_a_signal_after_the_run_has_the_default_action(tmp_path: Path) -> None:
    """faulthandler restores, at its own end, the action that it found."""
    text = """
    import atexit, faulthandler
    faulthandler.register(signal.SIGUSR1)
    def last():
        faulthandler.unregister(signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        while True: pass
    atexit.register(last)
    """
    assert profiled(text, tmp_path).returncode == -signal.SIGUSR1
    assert calls(tmp_path) == 5


@pytest.mark.parametrize("name", ["SIGHUP", "SIGXCPU"])
def test_f22_children_have_the_default_action(tmp_path: Path, name: str) -> None:
    text = f"""
    import multiprocessing, subprocess
    def end():
        os.kill(os.getpid(), signal.{name})
        while True: pass
    pid = os.fork()
    if not pid: end()
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
    child = multiprocessing.get_context("fork").Process(target=end)
    child.start()
    child.join()
    end = "import os, signal; os.kill(os.getpid(), signal.{name})"
    print(*codes, child.exitcode, subprocess.run([sys.executable, "-c", end]).returncode)
    later()
    """
    result = profiled(text, tmp_path).check()
    assert result.stdout.split() == [str(-getattr(signal, name))] * 3
    assert calls(tmp_path, "later") == 1


def test_pid_1_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel does not end it by a signal's default action: the program would go on."""
    monkeypatch.setattr(exit_hooks.os, "getpid", lambda: 1)
    with exit_hooks.Endings(lambda: None, lambda: None) as endings:
        assert endings._signal is None


@pytest.mark.parametrize(
    "call",
    [
        "os.execv(sys.executable, args)",
        "os.execve(sys.executable, args, os.environ)",
        "os.execlp('python3', *args)",
        "os.execvpe('python3', args, {**os.environ, 'PATH': '/nowhere:' + folder})",
        "execv(sys.executable, args)",
        "threading.Thread(target=os.execv, args=(sys.executable, args)).start(); wait()",
        "os.execve(os.open(sys.executable, os.O_RDONLY), args, os.environ)",
    ],
)
def test_exec_saves_first(tmp_path: Path, call: str) -> None:
    (tmp_path / "other.py").write_text("import sys\nprint('other', sys.argv[1:])\n")
    text = f"""
    import threading
    from os import execv
    wait = threading.Event().wait
    folder = os.path.dirname(sys.executable)
    os.environ["PATH"] = folder + ":" + os.environ["PATH"]
    args = [sys.executable, "other.py", "-x"]
    {call}
    """
    result = profiled(text, tmp_path).check()
    assert (result.stdout, result.stderr) == ("other ['-x']\n", "")
    assert calls(tmp_path) == 5


def test_exec_that_cannot_succeed_leaves_the_recording_alone(tmp_path: Path) -> None:
    text = """
    for call in (lambda: os.execv("nothing", ["x"]), lambda: os.execvp("nothing", ["x"]),
                 lambda: os.execv(os.path.dirname(os.__file__), ["x"]),
                 lambda: os.execv("train.py", ["x"]), lambda: os.execv(None, ["x"]),
                 lambda: os.execv(sys.executable, []), lambda: os.execv()):
        try:
            call()
        except (OSError, TypeError, ValueError) as error:
            print(type(error).__name__, error)
    later()
    """
    result = profiled(text, tmp_path).check()
    assert calls(tmp_path, "later") == 1
    assert result.stderr == ""
    assert result.stdout.count("FileNotFoundError") == 2


def test_exec_that_fails_after_all_leaves_a_saved_recording(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("no program")
    (tmp_path / "tool").chmod(0o755)
    text = """
    import threading
    def run():
        try:
            os.execv("tool", ["tool"])
        except OSError as error:
            print(error)
    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    os.kill(os.getpid(), signal.SIGHUP)
    """
    result = profiled(text, tmp_path)
    assert result.returncode == -signal.SIGHUP
    assert result.stdout.count("Exec format error") == 2
    assert "profiling stopped" in result.stderr
    assert calls(tmp_path) == 5


def test_the_program_finds_exec_as_without_fastprof(tmp_path: Path) -> None:
    text = """
    import pickle
    for function in (os.execv, os.execve):
        print(function.__name__, function in os.supports_fd)
        assert pickle.loads(pickle.dumps(function)) is function
    pid = os.fork()
    if not pid:
        os.execv(sys.executable, [sys.executable, "-c", "print('child', flush=True)"])
    os.waitpid(pid, 0)
    later()
    """
    result = profiled(text, tmp_path).check()
    assert result.stdout == python("train.py", cwd=tmp_path).check().stdout
    assert calls(tmp_path, "later") == 1


EACH_LINE = """
import signal, sys
from fastprof.capture import end_signal
from fastprof.cli import exit_hooks

class Stop(Exception):
    pass

def raises(*args):
    raise Stop

def saves_at(n, number):
    # Whether the run is saved if a signal comes at the n-th line that fastprof runs at the end.
    lines, saved = 0, 0
    def tracer(frame, event, arg):
        nonlocal lines
        lines += event == "line"
        if lines >= n and event == "line":
            signal.raise_signal(number)  # from here on at each line, until the handler raises
        return tracer
    def save():
        nonlocal saved
        saved += 1
        saved += 1
    try:
        with exit_hooks.Endings(lambda: None, save) as endings:
            try:
                sys.settrace(tracer)
            finally:
                endings.end()
    except (KeyboardInterrupt, Stop):
        pass
    finally:
        sys.settrace(None)
    assert saved == 2, (n, saved)
    return lines >= n

signal.signal(signal.SIGTERM, raises)
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, raises)):
    n = 1
    while saves_at(n, number):
        n += 1
        assert signal.getsignal(number) is handler
assert n > 30
"""


def test_f22_no_signal_loses_the_run_wherever_it_comes_during_the_save(tmp_path: Path) -> None:
    run_command([sys.executable, "-c", EACH_LINE], cwd=tmp_path, env=ENV).check()


FLOOD = """
class Flood:
    # A signal at each of fastprof's lines, from the end of the program on.
    def __init__(self, *numbers):
        self.numbers = numbers
        self.count = 0
    def __call__(self, frame, event, arg):
        if "fastprof" in frame.f_code.co_filename and event == "line":
            self.count += 1
            if self.count % 50 == 0:
                signal.raise_signal(self.numbers[self.count // 50 % len(self.numbers)])
        return self
"""


@pytest.mark.parametrize(
    ("command", "numbers", "end", "status"),
    [
        ("run -o out", "2", "", -signal.SIGINT),
        ("run -o out", "2", "raise KeyboardInterrupt", -signal.SIGINT),
        ("run -o out", "2", "os._exit(3)", 3),
        ("run -o out", "15, 15, 2", "os.kill(os.getpid(), 15)", -signal.SIGTERM),
        ("-o out.fprof", "2", "sys.exit(3)", -signal.SIGINT),
        ("-o out.fprof", "15, 2", "", -signal.SIGTERM),
    ],
)
def test_f22_ctrl_c_and_more_during_the_save_lose_nothing(
    tmp_path: Path, command: str, numbers: str, end: str, status: int
) -> None:
    write(FLOOD + f"sys.settrace(Flood({numbers}))\n{end}\n", tmp_path)
    result = python("-m", "fastprof", *command.split(), "train.py", cwd=tmp_path)
    assert result.returncode == status
    assert ".py" not in result.stderr or "<module>" in result.stderr
    if command.startswith("run"):
        assert calls(tmp_path, file="out/train_profile.stats") == 5
    else:
        # The screen names the 25 most expensive functions; "work" may be cheaper than those.
        report = fastprof.load(tmp_path / "out.fprof")
        assert [row.calls for row in report.functions if row.name == "work"] == [5]


def test_f20_a_forked_child_handles_its_signals_to_its_end(tmp_path: Path) -> None:
    program = tmp_path / "forks.py"
    program.write_text(
        textwrap.dedent("""
        import atexit, os, signal, sys
        signal.signal(signal.SIGUSR1, lambda *_: print("| handled", flush=True))
        child = os.fork()
        if not child:
            atexit.register(os.kill, os.getpid(), signal.SIGUSR1)
            sys.exit()
        os.waitpid(child, 0)
        """),
        encoding="utf-8",
    )
    result = run_command(
        [sys.executable, "-m", "fastprof", "run", "-o", "out", "forks.py"], cwd=tmp_path
    ).check()
    assert "| handled" in result.stdout


def test_f22_every_handler_of_a_signal_during_a_save_runs() -> None:
    ran = []

    def fails(number: int, frame: object) -> None:
        ran.append(number)
        raise ValueError

    before = {n: signal.getsignal(n) for n in (signal.SIGUSR1, signal.SIGUSR2)}
    try:
        for number in before:
            signal.signal(number, fails)
        held = exit_hooks.Held(end_signal.set_python_handler)
        held.begin()
        for number in before:
            signal.raise_signal(number)
        assert not ran
        with pytest.raises(ValueError):
            held.end()
        assert ran == list(before)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# exec fails after the save, and the program goes on.
OWN_ACTIONS = """
import faulthandler, os, signal, sys, time

def handler(number, frame):
    print("handled", flush=True)

dumps = open("dumps", "w")
signal.signal(signal.SIGUSR1, handler)
faulthandler.register(signal.SIGUSR1, file=dumps, all_threads=False, chain=True)
read, write = os.pipe()
os.set_blocking(write, False)
signal.set_wakeup_fd(write)
open("empty", "w").close()
os.chmod("empty", 0o755)
sent = []

def send():
    sent.append(os.kill(os.getpid(), signal.SIGUSR1))
    time.sleep(0)

def tracer(frame, event, arg):
    if frame.f_code.co_name == "_safely" and not sent:  # fastprof's save
        send()

sys.settrace(tracer)
try:
    os.execv("empty", ["empty"])
except OSError as error:
    print(error.strerror)
sys.settrace(None)
while len(sent) < 2:
    send()
print(os.read(read, 100), open("dumps").read().count("most recent call first"))
"""


@pytest.mark.parametrize("command", ["-o p.stats", "run -o out"])
def test_f22_a_save_leaves_what_other_code_does_with_signals(tmp_path: Path, command: str) -> None:
    (tmp_path / "train.py").write_text(OWN_ACTIONS)
    alone = python("train.py", cwd=tmp_path).check().stdout.splitlines()
    assert len(alone) == 4
    assert alone[-1].endswith(" 2")
    result = python("-m", "fastprof", *command.split(), "train.py", cwd=tmp_path).check()
    # The order differs: the first signal comes before exec fails.
    assert sorted(set(alone)) == sorted(set(result.stdout.splitlines()) & set(alone))
    assert result.stdout.count("handled") == 2
