"""Tables on a terminal: drawn where they fit, plain where they do not, never cut."""

from __future__ import annotations

import io

import fastprof
import pytest
from fastprof.report import build_report

pytest.importorskip("rich")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    with fastprof.Profiler(functions=False) as prof:
        for _ in range(5):
            with fastprof.profile_section("forward_pass"):
                pass
            prof.step()
    stream = Terminal()
    build_report(prof.snapshot()).show(stream)
    return stream.getvalue()


def test_a_wide_terminal_gets_drawn_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(200, monkeypatch)
    assert "forward_pass" in out
    assert "\u2502" in out or "|" in out


def test_a_narrow_terminal_loses_no_name_and_no_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(60, monkeypatch)
    assert "forward_pass" in out
    assert "\u2502" not in out
