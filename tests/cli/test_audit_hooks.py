"""An audit hook of the program that refuses what fastprof does changes no exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from helpers import run_child, run_command

PROGRAM = """
import os, signal, sys
def hook(event, args):
    if {refused}:
        raise {raised}(f"no {{event}}")
sys.addaudithook(hook)
{ending}
"""
COMMANDS = ("fastprof", "fastprof run")
REFUSED = {
    "all": "True",
    "frames": "event == 'object.__getattr__'",
    "folders": "event.startswith('os.')",
}
ENDINGS = {
    "": 0,
    "sys.exit(3)": 3,
    "os._exit(4)": 4,
    "signal.raise_signal(signal.SIGTERM)": -15,
}


def cases(values: Iterable[str]) -> list[Any]:
    """Return the values with each ending and command; in half of them, every pair occurs."""
    return [
        pytest.param(value, ending, command, marks=[pytest.mark.slow] * ((i + j + k) % 2))
        for i, value in enumerate(values)
        for j, ending in enumerate(ENDINGS)
        for k, command in enumerate(COMMANDS)
    ]


def said_with_status(folder: Path, program: str, ending: str, command: str) -> list[str]:
    """Run the program by the command; return fastprof's lines on standard error."""
    (folder / "train.py").write_text(program)
    words = [sys.executable, "-m", *command.split(), "train.py"]
    result = run_command(words, cwd=folder)
    assert result.returncode == ENDINGS[ending], result
    return [line for line in result.stderr.splitlines() if line.startswith("fastprof: ")]


@pytest.mark.parametrize(("refused", "ending", "command"), cases(REFUSED))
def test_p9_the_status_is_the_programs(
    tmp_path: Path, refused: str, ending: str, command: str
) -> None:
    program = PROGRAM.format(refused=REFUSED[refused], raised="RuntimeError", ending=ending)
    own = said_with_status(tmp_path, program, ending, command)
    assert len(own) <= 1, own


@pytest.mark.parametrize(
    ("raised", "ending", "command"), cases(["SystemExit", "KeyboardInterrupt"])
)
def test_p9_the_status_is_the_programs_though_a_hook_would_end_it(
    tmp_path: Path, raised: str, ending: str, command: str
) -> None:
    program = PROGRAM.format(refused="True", raised=raised, ending=ending)
    assert said_with_status(tmp_path, program, ending, command), "what is lost is reported"


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
        PROGRAM.format(refused="event == 'open'", raised="SystemExit", ending="")
    )
    words = [sys.executable, "-m", "fastprof", "run", "train.py"]
    assert "Profiler" not in run_command(words, cwd=tmp_path).stderr
