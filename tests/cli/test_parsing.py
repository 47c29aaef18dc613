"""Mistakes on the command line: no abbreviations, the nearest word, one line, status 2."""

from __future__ import annotations

import io
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from fastprof.cli import main
from fastprof.cli.messages import on_lines


def refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        status: object = main(args)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["run", "--step=3", "x.py"], "no option '--step'; did you mean --steps?"),
        (["run", "--function", "x.py"], "no option '--function'; did you mean --functions?"),
        (["run", "--zzz", "x.py"], "no option '--zzz'."),
        (["report", "F", "--finding"], "no option '--finding'; did you mean --findings?"),
        (["report", "F", "--raw", "--ful"], "no option '--ful'; did you mean --full?"),
        (["report", "F", "--format", "htlm"], "did you mean html?"),
        (["compare", "a", "b", "--undecided", "fial"], "did you mean fail?"),
        (["merge", "a", "--outptu", "x"], "no option '--outptu'; did you mean --output?"),
        (["targets", "--x"], "no option '--x'."),
        (["comapre"], "no command 'comapre'; did you mean compare?"),
        (["zzz"], "no command 'zzz'. There are: run, report,"),
        (["report", "nothing.fprof"], "fastprof: no such file: nothing.fprof"),
        (["compare", "nothing.fprof", "b"], "fastprof: no such file: nothing.fprof"),
        (["merge", "nothing.fprof"], "fastprof: no such file: nothing.fprof"),
    ],
)
def test_a_mistake_ends_with_status_2_and_the_nearest_word(
    args: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert line in refused(args, capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_suffix_that_is_no_format_gets_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import fastprof

    run = tmp_path / "a.fprof"
    fastprof.Profile().report().save(run)
    assert "did you mean .html?" in refused(["report", str(run), "-o", "x.hmtl"], capsys)


@pytest.mark.parametrize("command", ["report", "merge"])
def test_a_missing_argument_says_where_it_is_explained(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    what = {"report": "F|PID|DIR", "merge": "F"}[command]
    assert f" {what} is missing; `fastprof {command} --help` explains it" in said
    assert max(map(len, said.splitlines())) <= 100


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "args",
    [
        ["raport"],
        ["run"],
        ["report", "F", "--format", "xml"],
        ["compare", "nothing"],
        ["run", "-h"],
    ],
)
def test_no_message_is_wider_than_the_terminal(
    args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("stderr", "stdout"):
        monkeypatch.setattr(sys, name, screen)
    with suppress(SystemExit):
        main(args)
    # argparse prints colours since 3.14; they take no room.
    lines = re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue()).splitlines()
    assert lines
    assert max(map(len, lines)) <= 80


def test_a_message_is_one_line_for_a_file_and_a_path_is_whole() -> None:
    path = "/" + "long_name_of_a_folder/" * 6
    message = f"cannot write {path}: no such directory"
    assert on_lines(message, io.StringIO()) == message
    assert path in on_lines(message, Terminal())
