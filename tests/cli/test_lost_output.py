"""Each command with a standard output that is a full disk, a closed pipe, or closed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import fastprof
import pytest
from helpers import ChildResult, run_child, run_command

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


#: Runs each command in a process forked after the imports, which take most of a command's time.
EACH = """
import json, os, sys
from fastprof.cli import main, main_of_module, target
target._load_own()
where, folder, commands = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
for number, words in enumerate(commands):
    child = os.fork()
    if not child:
        break
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(os.path.join(folder, "status"), "a") as file:
        print(status, file=file)
else:
    os._exit(0)
os.dup2(os.open(os.path.join(folder, str(number)), os.O_CREAT | os.O_WRONLY), 2)
if where == "full":
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
elif where == "read":
    read, write = os.pipe()
    os.close(read)
    os.dup2(write, 1)
else:
    os.close(1)
    sys.stdout = sys.__stdout__ = None  # as at the start of the interpreter
sys.argv[1:] = words[words[0] == "-m":]
sys.exit((main_of_module if words[0] == "-m" else main)())
"""

Lost = dict[str, tuple[int, str]]


@pytest.fixture(scope="module", params=["full", "read", "closed"])
def lost(
    request: pytest.FixtureRequest, saved: str, tmp_path_factory: pytest.TempPathFactory
) -> Lost:
    """Return the status and the errors of each command whose standard output is lost."""
    folder = tmp_path_factory.mktemp("lost")
    commands = [named(words, saved) for words in WORDS + HELP]
    arguments = [request.param, str(folder), json.dumps(commands)]
    env = {**ENV, "PYTHONUNBUFFERED": ""}
    run_child(EACH, *arguments, cwd=folder, env=env).check()
    statuses = (folder / "status").read_text().split()
    assert len(statuses) == len(commands)
    return {
        " ".join(words): (int(status), (folder / str(number)).read_text())
        for number, (words, status) in enumerate(zip(WORDS + HELP, statuses, strict=True))
    }


@pytest.mark.parametrize("lost", ["full"], indirect=True)
@pytest.mark.parametrize("words", WORDS + HELP, ids=" ".join)
def test_f40_a_full_disk_is_one_line(lost: Lost, words: list[str]) -> None:
    status, errors = lost[" ".join(words)]
    # The demo reports its progress before it.
    assert (status, errors.splitlines(keepends=True)[-1]) == (2, LOST)
    assert errors == LOST or words[0] == "demo"


@pytest.mark.parametrize("words", [["targets"], ["report", "F"]], ids=" ".join)
@pytest.mark.parametrize("buffered", [False, True])
def test_f40_a_full_disk_from_the_start(
    words: list[str], saved: str, tmp_path: Path, buffered: bool
) -> None:
    result = shell('"$@" > /dev/full', named(words, saved), tmp_path, buffered=buffered)
    assert (result.returncode, result.stderr) == (2, LOST)


@pytest.mark.parametrize("lost", ["read", "closed"], indirect=True)
@pytest.mark.parametrize("words", WORDS + HELP, ids=" ".join)
def test_the_status_counts_without_a_reader_and_without_an_output(
    lost: Lost, words: list[str]
) -> None:
    status, errors = lost[" ".join(words)]
    assert status == 0
    assert errors == "" or (words[0] == "demo" and "Error" not in errors)


@pytest.mark.parametrize("words", [["targets"], ["report", "F"], ["-m", "--help"]], ids=" ".join)
def test_without_standard_output_from_the_start(
    words: list[str], saved: str, tmp_path: Path
) -> None:
    result = shell('"$@" >&-', named(words, saved), tmp_path)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_reader_that_has_seen_enough_is_no_error(saved: str, tmp_path: Path) -> None:
    line = '{ { sleep 0.1; "$@"; echo $? >&3; } | true; } 3>&1'
    result = shell(line, ["report", saved], tmp_path)
    assert (result.stdout, result.stderr) == ("0\n", "")


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
