"""docs/findings: a section per rule, and existing scripts and pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastprof.findings.examine import RULES, subject
from helpers import ROOT

FOLDER = ROOT / "docs" / "findings"
PAGES = sorted(FOLDER.glob("*.md"))
GUIDE = ROOT / "docs" / "reading-a-report.md"


def sections() -> dict[str, tuple[Path, str]]:
    """Return heading of second level -> page and text below it, of all pages but the overview."""
    found: dict[str, tuple[Path, str]] = {}
    for page in PAGES:
        if page.name == "README.md":
            continue
        _, *parts = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for part in parts:
            title, _, text = part.partition("\n")
            assert title not in found, f"{title} has two sections"
            found[title] = (page, text)
    return found


def test_each_rule_has_one_section_and_nothing_else_has() -> None:
    assert sorted(sections()) == sorted(rule.id for rule in RULES)


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_a_section_says_how_it_is_seen_and_shows_code_or_a_script(rule: str) -> None:
    page, text = sections()[rule]
    assert "**Seen by.**" in text
    assert "```" in text or "**Script.**" in text or "The remedy is the same" in text
    # The overview links to it.
    overview = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"[{rule}]({page.name}#{rule}) | {subject(rule)} |" in overview


def test_every_script_that_is_named_exists_and_every_problem_is_named() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"`((?:examples|tests|benchmarks)/\w[\w/]*\.py)\b", text))
    assert named
    for script in named:
        assert (ROOT / script).is_file(), script
    problems = {f"examples/problems/{path.name}" for path in (ROOT / "examples/problems").iterdir()}
    assert {p for p in problems if p.endswith(".py")} <= named


@pytest.mark.parametrize("page", [*PAGES, GUIDE], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), target
