"""Names the tests of a source file, by the naming rule of docs/style.md.

    python tools/tests_of.py python/fastprof/report/rows.py csrc/core/tree.c
    python -m pytest $(python tools/tests_of.py python/fastprof/report/rows.py)

A test file is named after its module, its module and a subject (``test_rows_order.py``), or its
package and module (``test_report_rows.py``).
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def named_after(path: Path, folder: Path = ROOT / "tests") -> list[Path]:
    """Return the test files of a source file in C or Python, sorted."""
    parts = [part.strip("_") for part in path.with_suffix("").parts]
    if parts[-1] == "init":
        parts.pop()
    names = {parts[-1], "_".join(parts[-2:])}
    suffix = ".c" if path.suffix in (".c", ".h") else ".py"
    found = {
        test
        for test in folder.rglob(f"test_*{suffix}")
        for name in names
        if test.stem == f"test_{name}" or test.stem.startswith(f"test_{name}_")
    }
    return sorted(found)


def main(arguments: list[str]) -> int:
    """Print the tests of each file; fail if one has none."""
    status = 0
    for argument in arguments:
        found = named_after(Path(argument))
        for path in found:
            print(path.relative_to(ROOT))
        if not found:
            print(f"{argument}: no test file is named after it", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
