"""Tables on a terminal: drawn if all of them fit, else plain; never cut."""

from __future__ import annotations

import io
import re

import fastprof
import pytest
from fastprof.results.report import build_report
from unit.test_report import training_run

pytest.importorskip("rich")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(columns: int, monkeypatch: pytest.MonkeyPatch, *, full: bool = True) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    with fastprof.Profiler(functions=False) as prof:
        for _ in range(5):
            with fastprof.profile_section("forward_pass"):
                pass
            prof.step()
    stream = Terminal()
    build_report(prof.snapshot()).show(stream, full=full)
    return stream.getvalue()


def plain(drawn: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", drawn)


def test_a_wide_terminal_gets_drawn_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(200, monkeypatch)
    assert "forward_pass" in out
    assert "\u2502" in out or "|" in out


def test_a_narrow_terminal_loses_no_name_and_no_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(60, monkeypatch)
    assert "forward_pass" in out
    assert max(map(len, plain(out).splitlines())) <= 60


def test_rich_draws_the_tables_where_all_of_them_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # A collection that happens to run in a step adds a table with a long place.
    steps = plain(shown(400, monkeypatch)).split("Where a step goes")[1].split("\n\n")[0]
    assert "\u2502 forward_pass" in steps


def test_tables_of_one_report_look_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mix of drawn and plain tables would look like the output of two programs."""
    monkeypatch.setenv("TERM", "xterm")
    for columns in range(60, 200, 20):
        monkeypatch.setenv("COLUMNS", str(columns))
        stream = Terminal()
        build_report(training_run()).show(stream, full=True)
        out = plain(stream.getvalue())
        assert not ("\u2502" in out and "-----  -----" in out), columns


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_one_screen_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(columns, monkeypatch, full=False).splitlines()
    assert max(map(len, lines)) <= columns
    assert len(lines) <= 35
    assert any(line.startswith("forward_pass") for line in lines)
