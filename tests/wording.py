"""The wording of findings and of sentences that a job logs: one golden file per rule.

A test that has made a finding calls :func:`same_text`; it asserts figures, functions and rules
itself.  ``python tools/wording.py`` writes the files of ``tests/golden/wording/`` anew: look at
their diff, and commit it with the change of wording.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from fastprof.report.findings import Finding

FOLDER = Path(__file__).resolve().parent / "golden" / "wording"
#: Set: the files are written.
REWRITE = "FASTPROF_WRITE_WORDING"

_seen: dict[str, int] = {}


def same_text(made: Finding | str | Sequence[str], subject: str = "") -> None:
    """Compare a text with that of the running test in the golden file of its subject.

    Args:
        made: a finding, a text, or lines.
        subject: the name of the file; "": the rule of the finding.
    """
    if isinstance(made, Finding):
        subject, made = subject or made.rule, _lines(made)
    text = made if isinstance(made, str) else "\n".join(made)
    path = FOLDER / f"{subject}.txt"
    case = _case(path)
    known = texts(path)
    if REWRITE in os.environ:
        known[case] = text
        FOLDER.mkdir(parents=True, exist_ok=True)
        parts = (f"== {name}\n{known[name]}\n" for name in sorted(known))
        path.write_text("\n".join(parts), encoding="utf-8")
    assert text == known.get(case), f"{path.name} differs; if that is right: tools/wording.py"


def texts(path: Path) -> dict[str, str]:
    """Return the texts of a golden file: test -> text."""
    whole = path.read_text(encoding="utf-8") if path.exists() else ""
    _, *parts = re.split(r"^== ", whole, flags=re.MULTILINE)
    split = (part.partition("\n") for part in parts)
    return {name: text.strip("\n") for name, _, text in split}


def _lines(made: Finding) -> list[str]:
    lines = [f"[{made.severity}] {made.title}", *(f"  {text}" for text in made.evidence)]
    return [*lines, *(f"  -> {text}" for text in made.fix)]


def _case(path: Path) -> str:
    """Return the name of the running test, numbered if it compares several texts of a file."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].rpartition("::")[2]
    key = f"{path.name} {os.environ['PYTEST_CURRENT_TEST']}"
    if key not in _seen:  # another test, or the same one again
        _seen.clear()
    _seen[key] = _seen.get(key, 0) + 1
    return test if _seen[key] == 1 else f"{test} {_seen[key]}"
