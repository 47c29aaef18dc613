"""Each command with a standard output that is a full disk, a closed pipe, or closed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fastprof
import pytest
from helpers import ChildResult, run_command

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
ENV = {"PYTHONPATH": os.pathsep.join(filter(None, [SOURCE_PATH, os.environ.get("PYTHONPATH")]))}

#: Runs the command `fastprof`; words that begin with -m run `python -m fastprof`.
COMMAND = "import sys; from fastprof.cli import main; sys.exit(main())"

LOST = "fastprof: cannot write to standard output: No space left on device\n"

WORDS = [
    ["--version"],
    ["--help"],
    ["targets"],
    ["doctor"],
    ["report", "F"],
    ["report", "F", "--format", "json"],
    ["report", "F", "--findings"],
    ["report", "F", "--table", "functions"],
    ["compare", "F", "F"],
    ["demo", "--backend", "pure", "--steps", "1"],
]

HELP = [["report", "--help"], ["run", "--help"], ["-m", "--help"]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    profile = fastprof.Profile()
    profile.runcall(sorted, [2, 1])
    path = tmp_path_factory.mktemp("saved") / "run.fprof"
    profile.report().save(path)
    return str(path)


def shell(line: str, words: list[str], cwd: Path, *, buffered: bool = True) -> ChildResult:
    """Run `line` with the command as "$@"; the command's status is on the shell's stdout."""
    command = [sys.executable, "-m", "fastprof", *words[1:]]
    if words[0] != "-m":
        command = [sys.executable, "-c", COMMAND, *words]
    env = {**ENV, "PYTHONUNBUFFERED": "" if buffered else "1"}
    return run_command(["sh", "-c", line, "sh", *command], cwd=cwd, env=env)


def named(words: list[str], path: str) -> list[str]:
    return [path if word == "F" else word for word in words]


def last_line(result: ChildResult) -> str:
    """Return the last line; the demo reports its progress before it."""
    return result.stderr.splitlines(keepends=True)[-1]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_f40_a_full_disk_is_one_line(words: list[str], saved: str, tmp_path: Path) -> None:
    result = shell('"$@" > /dev/full', named(words, saved), tmp_path)
    assert (result.returncode, last_line(result)) == (2, LOST)
    assert result.stderr == LOST or words[0] == "demo"


@pytest.mark.parametrize("words", [["targets"], ["report", "F"]], ids=" ".join)
def test_f40_a_full_disk_without_a_buffer(words: list[str], saved: str, tmp_path: Path) -> None:
    result = shell('"$@" > /dev/full', named(words, saved), tmp_path, buffered=False)
    assert (result.returncode, result.stderr) == (2, LOST)


@pytest.mark.parametrize("words", HELP, ids=" ".join)
def test_f40_a_full_disk_under_a_help_text(words: list[str], tmp_path: Path) -> None:
    result = shell('"$@" > /dev/full', words, tmp_path)
    assert (result.returncode, result.stderr) == (2, LOST)


@pytest.mark.parametrize("words", WORDS + HELP, ids=" ".join)
def test_a_reader_that_has_seen_enough_is_no_error(
    words: list[str], saved: str, tmp_path: Path
) -> None:
    line = '{ { sleep 0.1; "$@"; echo $? >&3; } | true; } 3>&1'
    result = shell(line, named(words, saved), tmp_path)
    assert result.stdout == "0\n"
    assert result.stderr == "" or (words[0] == "demo" and "Error" not in result.stderr)


@pytest.mark.parametrize("words", WORDS + HELP, ids=" ".join)
def test_without_standard_output_the_status_counts(
    words: list[str], saved: str, tmp_path: Path
) -> None:
    result = shell('"$@" >&-', named(words, saved), tmp_path)
    assert result.returncode == 0
    assert result.stderr == "" or (words[0] == "demo" and "Error" not in result.stderr)


def test_a_failed_condition_sets_the_status_where_the_output_is_lost(
    saved: str, tmp_path: Path
) -> None:
    line = '{ { sleep 0.1; "$@"; echo $? >&3; } | true; } 3>&1'
    result = shell(line, ["compare", saved, saved, "--fail-if", "wall>0ms"], tmp_path)
    assert result.stdout == "1\n"
    assert result.stderr.startswith("fastprof: --fail-if wall>0ms: met: ")


@pytest.mark.parametrize("words", [["run", "--functions", "quiet.py"], ["-m", "quiet.py"]])
def test_f40_a_report_that_is_lost_leaves_the_program_s_status(
    words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "quiet.py").write_text("sorted([2, 1])\n")
    result = shell('"$@" > /dev/full', words, tmp_path)
    assert result.returncode == 0
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith(LOST.removeprefix("fastprof: "))


@pytest.mark.parametrize("words", [["run", "--functions", "loud.py"], ["-m", "loud.py"]])
def test_f40_the_interpreter_reports_what_the_program_has_lost(
    words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "loud.py").write_text("print('it')\n")
    plain = run_command(
        ["sh", "-c", f"{sys.executable} loud.py > /dev/full"],
        cwd=tmp_path,
        env={"PYTHONUNBUFFERED": ""},
    )
    result = shell('"$@" > /dev/full', words, tmp_path)
    assert result.returncode == plain.returncode != 0
    assert result.stderr.startswith("fastprof: ")
    assert result.stderr.endswith(plain.stderr)
