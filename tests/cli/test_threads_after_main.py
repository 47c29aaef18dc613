"""Threads that outlive the main thread are part of the recording."""

from __future__ import annotations

import pstats
import sys

import pytest
from helpers import run_command

PROGRAM = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor

main_ended = threading.Event()

def crunch():
    main_ended.wait()
    return sum(i * i for i in range(1000))

pool = ThreadPoolExecutor(1)
pool.submit(len, "")  # never shut down
threading.Thread(target=crunch).start()
threading.Thread(target=threading.Event().wait, daemon=True).start()
threading._register_atexit(main_ended.set)
END
"""


@pytest.mark.parametrize(("end", "status"), [("", 0), ("sys.exit(3)", 3)])
@pytest.mark.parametrize("command", [["run", "-o", "out"], ["-o", "out.stats"]])
def test_a_thread_that_outlives_main_is_recorded(tmp_path, end, status, command):
    (tmp_path / "program.py").write_text(PROGRAM.replace("END", end))
    words = [sys.executable, "-m", "fastprof", *command, "program.py"]
    run_command(words, cwd=tmp_path).check(returncode=status)
    saved = "out/train_profile.stats" if "run" in command else "out.stats"
    stats = pstats.Stats(str(tmp_path / saved)).stats
    calls = {name: figures[0] for (_, _, name), figures in stats.items()}
    assert calls["crunch"] == 1
    assert any(name.startswith("<genexpr>") for name in calls)


@pytest.mark.parametrize("end", ["", "sys.exit(3)"])
@pytest.mark.parametrize(
    "raises", ["signal.raise_signal(signal.SIGINT)", "sys.exit(4)", "{}['missing']"]
)
def test_an_exception_while_the_interpreter_waits_is_dropped_as_by_python(tmp_path, raises, end):
    lines = [
        "import signal, sys, threading",
        f"def waits(): {raises}",
        "threading._register_atexit(waits)",
        "def hook(given):",
        "    print('|', given.err_msg, given.object, repr(given.exc_value))",
        "sys.unraisablehook = hook",
        end,
    ]
    (tmp_path / "program.py").write_text("\n".join(lines))
    plain = run_command([sys.executable, "program.py"], cwd=tmp_path)
    assert plain.stdout.count("|") == 1
    ours = run_command([sys.executable, "-m", "fastprof", "run", "program.py"], cwd=tmp_path)
    assert [line for line in ours.stdout.splitlines() if line.startswith("|")] == [
        plain.stdout.rstrip()
    ]
    assert "Traceback" not in ours.stderr
    assert ours.returncode == plain.returncode == (3 if end else 0)
