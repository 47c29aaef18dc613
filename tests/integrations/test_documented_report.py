"""The guide to reading a report quotes a real one: its tables and columns exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastprof.results.saved import load
from fastprof.tables.report import all_tables
from helpers import ROOT, run_child

pytest.importorskip("torch")

GUIDE = (ROOT / "docs" / "reading-a-report.md").read_text(encoding="utf-8")
#: Only slow steps have it, and this run may have none.
_NOT_ALWAYS = "Slowest steps and what was different"


def quoted() -> dict[str, set[str]]:
    """Return the guide's tables: the title without what varies -> the headers."""
    found = {}
    for block in re.findall(r"```\n(.*?)\n```", GUIDE, re.DOTALL):
        lines = block.split("\n")
        for title, header, rule in zip(lines, lines[1:], lines[2:], strict=False):
            if rule and set(rule) == {"-", " "}:
                found[named(title)] = set(re.split(r" {2,}", header.strip()))
    return found


def named(title: str) -> str:
    return re.split(r" \(|, most", title)[0]


def test_the_guide_quotes_the_tables_of_todays_report(tmp_path: Path) -> None:
    program = ROOT / "examples" / "problems" / "slow_dataset.py"
    code = f"from fastprof.cli import main; main(['run', '-o', 'made', {str(program)!r}])"
    screen = run_child(code, cwd=tmp_path, timeout=300.0).check().stdout
    report = load(tmp_path / "made")
    tables = {named(table.title): set(table.headers) for table in all_tables(report)}
    quotes = quoted()
    assert len(quotes) >= 9
    for title, headers in quotes.items():
        if title != _NOT_ALWAYS:
            assert headers <= tables[title], title
    text = f"{screen}\n{report.to_text(full=True)}"
    for begin in re.findall(r"(?m)^(Of a step's time:|Outside the measured steps:|GPU: none found|"
                            r"your functions in a step|Findings, largest first:|Notes:|More:|"
                            r"Overhead: fastprof cost|Wrote)", GUIDE):  # fmt: skip
        assert begin in text
    # Each phase and each row that the guide shows is named as today.
    block = next(b for b in GUIDE.split("```") if b.strip().startswith("Phases of the run"))
    for row in block.strip().split("\n")[3:]:
        assert row.split("  ")[0] in text
