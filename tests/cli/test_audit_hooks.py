"""An audit hook of the program that refuses what fastprof does changes no exit status."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers import run_child, run_command

PROGRAM = """
import os, sys
def hook(event, args):
    if {refused}:
        raise RuntimeError(f"no {{event}}")
sys.addaudithook(hook)
{ending}
"""
COMMANDS = [[], ["run"]]
REFUSED = {
    "all": "True",
    "frames": "event == 'object.__getattr__'",
    "folders": "event.startswith('os.')",
}


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize(("ending", "status"), [("", 0), ("sys.exit(3)", 3), ("os._exit(4)", 4)])
def test_p9_the_status_is_the_programs(
    tmp_path: Path, ending: str, status: int, refused: str
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(refused=REFUSED[refused], ending=ending))
    for command in COMMANDS:
        words = [sys.executable, "-m", "fastprof", *command, "train.py"]
        result = run_command(words, cwd=tmp_path)
        assert result.returncode == status, result
        own = [line for line in result.stderr.splitlines() if line.startswith("fastprof: ")]
        assert len(own) <= 1, result


def test_p9_a_recording_that_does_not_stop_is_saved_and_reported_once() -> None:
    code = """if True:
        from fastprof.cli.exit_hooks import Endings
        saved = []
        def stop(): raise RuntimeError("refused")
        with Endings(stop, lambda: saved.append(1)) as endings:
            endings.stop()
        assert saved == [1]
    """
    result = run_child(code).check()
    assert result.stderr == "fastprof: the recording did not stop as it should: refused\n"


def test_p9_a_handlers_exception_passes_though_the_recording_stops() -> None:
    code = """if True:
        import os, signal
        from fastprof.cli.exit_hooks import Endings
        def handler(number, frame): raise TimeoutError
        signal.signal(signal.SIGALRM, handler)
        saved = []
        def stop():
            if not saved: signal.raise_signal(signal.SIGALRM)
        try:
            with Endings(stop, lambda: saved.append(1)): pass
        except TimeoutError:
            print("passed", saved)
    """
    assert run_child(code).check().stdout == "passed [1]\n"


def test_p9_a_hook_that_ends_the_program_is_not_taken_for_another_profiler(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        PROGRAM.format(refused="event == 'open'", ending="").replace("RuntimeError", "SystemExit")
    )
    words = [sys.executable, "-m", "fastprof", "run", "train.py"]
    assert "Profiler" not in run_command(words, cwd=tmp_path).stderr
