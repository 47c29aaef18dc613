"""Debuggers step through a profiled program as through the same program alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from fastprof._core import Around, find_elsewhere
from helpers import run_command

#: Steps into imports of libraries and of an own module, and into calls.
PROGRAM = """
import bdb, json, sys

class Steps(bdb.Bdb):
    seen = []

    def note(self, event, frame):
        code = frame.f_code
        self.seen.append((event, code.co_filename, code.co_name, frame.f_lineno))
        self.set_step()

    def user_call(self, frame, arguments):
        self.note("call", frame)

    def user_line(self, frame):
        self.note("line", frame)

    def user_return(self, frame, value):
        self.note("return", frame)

    def user_exception(self, frame, info):
        self.note("exception", frame)

debugger = Steps()
debugger.set_trace()
import colorsys
import torch
import own
own.twice(3)
debugger.set_quit()
sys.settrace(None)
with open(sys.argv[1], "w") as file:
    json.dump(Steps.seen, file)
"""
OWN = """
def twice(x):
    return 2 * x
"""


def steps_of(folder: Path, *command: str) -> list[list[object]]:
    for _ in range(2):  # the first one compiles
        run_command([sys.executable, *command, "program.py", "steps.json"], cwd=folder).check()
    return json.loads((folder / "steps.json").read_text())


@pytest.mark.parametrize("command", [("run", "-o", "out"), ("-o", "out.stats")])
def test_p9_a_debugger_steps_as_without_fastprof(tmp_path: Path, command) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "torch.py").write_text("x = 1\n")  # fastprof waits for this import
    alone = steps_of(tmp_path)
    profiled = steps_of(tmp_path, "-m", "fastprof", *command)
    assert ["call", str(tmp_path / "own.py"), "twice", 2] in alone
    assert [str(tmp_path / "torch.py"), "<module>"] in [step[1:3] for step in alone]
    # fastprof waits for torch with a finder: a turn more in the import system's loop.
    importing = "<frozen importlib"
    assert [step for step in profiled if importing not in str(step[1])] == [
        step for step in alone if importing not in str(step[1])
    ]
    assert {tuple(step[1:3]) for step in profiled} <= {tuple(step[1:3]) for step in alone}


class Trace:
    """The Python functions that the thread calls, as its trace function sees them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, frame, event, arg) -> None:
        self.calls.append(frame.f_code.co_name)


def traced(function, *args):
    trace, before = Trace(), sys.gettrace()
    sys.settrace(trace)
    try:
        result = function(*args)
    except Exception as error:
        result = error
    finally:
        sys.settrace(before)
    return result, trace.calls


def test_the_program_s_function_is_traced_and_fastprof_s_are_not() -> None:
    seen = []

    def original(*args, **kwargs):
        seen.append((args, kwargs))
        return 5

    def before(*args, **kwargs):
        seen.append("before")
        return 7

    around = Around(original, before, lambda token, result: seen.append((token, result)))
    assert traced(lambda: around(1, k=2)) == (5, ["<lambda>", "original"])
    assert seen == ["before", ((1,), {"k": 2}), (7, 5)]
    assert around.__name__ == "original"

    bound = type("Has", (), {"method": around})()
    del seen[:]
    assert bound.method() == 5
    assert seen[1] == ((bound,), {})


def test_errors_of_fastprof_s_functions_stop_there_and_others_pass() -> None:
    seen = []

    def fails(*args):
        raise ValueError(args)

    assert traced(Around(lambda: 3, fails, fails)) == (3, ["<lambda>"])
    error, _ = traced(Around(fails, None, lambda token, result: seen.append(result)), 4)
    assert isinstance(error, ValueError)
    assert error.args == ((4,),)
    assert seen == [...]


def test_what_others_find_is_found_without_a_frame(monkeypatch) -> None:
    class Finder:
        def find_spec(self, name, path, target):
            return (name, path, target) if name == "it" else None

    first, own = Finder(), object()
    monkeypatch.setattr(sys, "meta_path", [own, first])
    found = traced(lambda: find_elsewhere(own, "it", "it", None, None))
    assert found == (("it", None, None), ["<lambda>", "find_spec"])
    assert traced(lambda: find_elsewhere(own, "it", "else", None, None)) == (None, ["<lambda>"])
    assert find_elsewhere(first, "it", "it", None, None) is None
    assert find_elsewhere(own, None, "it", None, None) is None
