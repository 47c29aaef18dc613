"""Compares python/fastprof/_core.pyi with the installed extension.

    python tools/check_stub.py

prints one line for each difference; the exit status is 1 if there is any.  Compares names only,
because the types of C functions cannot be read back.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

STUB = Path(__file__).resolve().parent.parent / "python" / "fastprof" / "_core.pyi"


def declared(body: Iterable[ast.stmt]) -> set[str]:
    """Return the public names that the statements of a stub define."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def differences(stub: ast.Module, module: ModuleType) -> list[str]:
    """Return the names that only the stub or only the module has, also inside classes."""
    found: list[str] = []

    def compare(where: str, wanted: set[str], actual: set[str]) -> None:
        found.extend(f"{where}{name}: in the stub only" for name in sorted(wanted - actual))
        found.extend(f"{where}{name}: in the extension only" for name in sorted(actual - wanted))

    def public(names: Iterable[str]) -> set[str]:
        return {name for name in names if not name.startswith("_")}

    compare("", declared(stub.body), public(dir(module)))
    for node in stub.body:
        if isinstance(node, ast.ClassDef) and hasattr(module, node.name):
            actual = vars(getattr(module, node.name))
            compare(f"{node.name}.", declared(node.body), public(actual))
    return found


def main() -> int:
    from fastprof import _core

    lines = differences(ast.parse(STUB.read_text(encoding="utf-8")), _core)
    print("\n".join(lines) if lines else "stub: names agree with the extension")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
