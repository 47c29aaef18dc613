"""tools/words.py finds the words that the glossary replaces, and only in text."""

from __future__ import annotations

from pathlib import Path

import pytest
import words
from helpers import ROOT

PAGE = """
| word | meaning | replaces |
|---|---|---|
| **reported** | shown | told, said |
| **step** | one step | |
"""


def found_in(tmp_path: Path, name: str, text: str) -> list[str]:
    for path, content in ((words.STYLE, PAGE), (name, text)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content, encoding="utf-8")
    return words.violations(tmp_path)


def test_the_glossary_of_the_page_is_read():
    found = words.glossary((ROOT / words.STYLE).read_text(encoding="utf-8"))
    assert {"told", "beside", "silent"} <= found.keys()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", "One line.\nThe user is told.\n"),
        ("docs/a.md", "\nTold by `told`.\n"),
        ("docs/integrations/a.md", "`told` and\nsaid\n"),
        ("python/fastprof/a.py", "x = 1\n# told once\n"),
        ("python/fastprof/a.py", '"""A.\n\n  told: the thing that is said.\n"""\n'),
        ("python/fastprof/a.py", "told = 0\nlog(f'{told} was told')\n"),
    ],
)
def test_a_replaced_word_is_found_in_its_line(tmp_path, name, text):
    (line,) = found_in(tmp_path, name, text)
    number = 3 if "A.\n" in text else 2
    assert line.startswith(f"{name}:{number}: ")
    assert line.endswith(": write 'reported'")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", "Use `told` or\n```\ntold\n```\n"),
        ("docs/decisions/0001.md", "told\n"),
        ("python/fastprof/a.py", "told = d['told']\nd[f'{told} {said}'] = 1\n"),
        ("python/fastprof/a.py", '"""A.\n\nArgs:\n    told: what.\n    told, said: more.\n"""\n'),
        ("tests/unit/a.py", "# told\n"),
    ],
)
def test_names_code_and_history_are_allowed(tmp_path, name, text):
    assert found_in(tmp_path, name, text) == []


def test_a_glossary_of_no_word_or_too_many_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    assert found_in(tmp_path, "README.md", "text\n") == []
    assert words.main() == 0
    for page, number in (("nothing", 0), ("| **word** | | |\n" * 26, 26)):
        (tmp_path / words.STYLE).write_text(page, encoding="utf-8")
        assert words.main() == 1
        assert f"has {number} words" in capsys.readouterr().out
