"""Writes the golden texts of findings and of a job's sentences anew: ``tests/golden/wording/``.

    python tools/wording.py

It runs the tests that compare such texts.  Read the diff before you commit it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "golden" / "wording"


def users() -> list[str]:
    """Return the test files that compare a text with its golden one."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(f) for f in files if "same_text(" in f.read_text(encoding="utf-8")]


def main() -> int:
    """Write all files; return pytest's exit status."""
    for path in FOLDER.glob("*.txt"):  # texts of tests that are gone would stay
        path.write_text("", encoding="utf-8")
    env = {**os.environ, "FASTPROF_WRITE_WORDING": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", *users()]
    status = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    for path in FOLDER.glob("*.txt"):
        if not path.read_text(encoding="utf-8"):
            path.unlink()
    return status


if __name__ == "__main__":
    sys.exit(main())
