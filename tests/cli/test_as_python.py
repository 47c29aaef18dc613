"""The commands run a program as ``python`` runs it: each test compares with Python itself."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastprof
import pytest
from helpers import ChildResult, run_command

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
ENV = {"PYTHONPATH": os.pathsep.join(filter(None, [SOURCE_PATH, os.environ.get("PYTHONPATH")]))}

#: Commands that run a program; the program and its arguments follow.
COMMANDS = {
    "-m fastprof": ("-m", "fastprof", "-o", "out.stats"),
    "run": ("-m", "fastprof", "run", "-o", "out"),
    "run --functions": ("-m", "fastprof", "run", "--functions", "-o", "out"),
}


@pytest.fixture(params=COMMANDS)
def command(request: Any) -> Sequence[str]:
    return COMMANDS[request.param]


def python(*args: object, cwd: Path, **options: Any) -> ChildResult:
    env = {**ENV, **options.pop("env", {})}
    return run_command([sys.executable, *map(str, args)], cwd=cwd, env=env, **options)


def of_program(output: str) -> list[str]:
    """Return the lines that a program of these tests printed."""
    return [line for line in output.splitlines() if line.startswith("|")]


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


#: What a program leaves to the end of the interpreter.
LEFT = """
    import bz2, gzip, shelve, sys, zipfile
    class Thing(dict):
        def __init__(self, name): self.update(name=name)
        def __del__(self): print("| deleted", self["name"], flush=True)
        def work(self): local = Thing("local"); return self.keys() and END
    first = Thing("first")
    _private = Thing("private")
    def function(): return first
    class Holder:
        thing = Thing("class attribute")
        def method(self): return function()
    Holder().method()
    last = Thing("last")
    archive = zipfile.ZipFile("archive", "w")
    archive.writestr("member", "text")
    packed = gzip.open("packed", "wb")
    packed.write(b"text")
    packed2 = bz2.open("packed2", "wb")
    packed2.write(b"text")
    shelf = shelve.open("shelf", writeback=True)
    shelf["key"] = []
    shelf["key"].append(1)
    plain = open("plain", "w")
    plain.write("text")
    first.work()
"""

READ_LEFT = """
    import bz2, gzip, shelve, zipfile
    print(zipfile.ZipFile("archive").namelist(), gzip.open("packed").read(),
          bz2.open("packed2").read(), dict(shelve.open("shelf")), open("plain").read())
"""


@pytest.mark.parametrize(
    ("form", "end"),
    [("script", "None"), ("script", "sys.exit(3)"), ("script", "1 / 0"), ("module", "None")],
)
def test_globals_are_destroyed_as_by_python(
    tmp_path: Path, command: Sequence[str], form: str, end: str
) -> None:
    write(tmp_path / "left.py", LEFT.replace("END", end))
    reads = write(tmp_path / "reads.py", READ_LEFT)
    target = ["left.py"] if form == "script" else ["-m", "left"]
    results = []
    for before in ((), command):
        for name in ("archive", "packed", "packed2", "plain", *map(str, tmp_path.glob("shelf*"))):
            (tmp_path / name).unlink(missing_ok=True)
        result = python(*before, *target, cwd=tmp_path)
        left = python(reads, cwd=tmp_path).check().stdout
        results.append((result.returncode, of_program(result.stdout), left))
    assert results[1] == results[0]
    assert len(results[0][1]) == 5
    assert "member" in results[0][2]


@pytest.mark.parametrize("begin", ["", "Profiler().start()", "Profile().enable()"])
def test_globals_are_destroyed_as_by_python_in_a_run_that_nobody_stops(
    tmp_path: Path, begin: str
) -> None:
    write(tmp_path / "left.py", f"from fastprof import *\n{begin}\n" + textwrap.dedent(LEFT))
    reads = write(tmp_path / "reads.py", READ_LEFT)
    text = (tmp_path / "left.py").read_text().replace("END", "None")
    (tmp_path / "left.py").write_text(text)
    result = python("left.py", cwd=tmp_path, env={} if begin else {"FASTPROF": "1"}).check()
    assert sorted(of_program(result.stdout)) == [
        f"| deleted {name}" for name in ("class attribute", "first", "last", "local", "private")
    ]
    assert "member" in python(reads, cwd=tmp_path).check().stdout


@pytest.mark.parametrize("form", ["script", "module"])
def test_a_hook_for_exceptions_gets_the_programs_frames(
    tmp_path: Path, command: Sequence[str], form: str
) -> None:
    write(
        tmp_path / "hooked.py",
        """
        import atexit, sys, traceback
        def hook(kind, error, tb):
            print("|", [f.name for f in traceback.extract_tb(tb) if "runpy" not in f.filename])
            print("|", tb is error.__traceback__ is sys.last_traceback)
        assert sys.excepthook is sys.__excepthook__
        sys.excepthook = hook
        atexit.register(lambda: print("|", sys.excepthook is hook))
        def load(): {}["missing"]
        load()
        """,
    )
    target = ["hooked.py"] if form == "script" else ["-m", "hooked"]
    plain = python(*target, cwd=tmp_path)
    ours = python(*command, *target, cwd=tmp_path)
    assert of_program(plain.stdout) == ["| ['<module>', 'load']", "| True", "| True"]
    assert of_program(ours.stdout) == of_program(plain.stdout)
    assert ours.returncode == plain.returncode == 1
