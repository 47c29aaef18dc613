"""Checks the import directions of the package, and that no files import each other in a circle.

    python3 tools/layers_python.py [ROOT]

prints one line for each violation; the exit status is 1 if there is any.  Imports inside functions
and for typing count, too: a reader of one file in a circle has to read all of them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from layers_c import circles

PACKAGE = "fastprof"
BASE = (
    *(
        "snapshot",
        "clock",
        "errors",
        "fast",
        "guards",
        "names",
        "fileio",
        "lazy",
        "own_builtins",
        "own_imports",
    ),
    "_version",
)
#: Begin of a module's dotted name (of several, the longest counts) -> begins of those that it may
#: import, besides its own.  `capture` and `report` meet only through `snapshot`.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(BASE, BASE),
    "fast": ("_core",),
    "capture": (*BASE, "_core"),
    "report": BASE,
    "ranks": (*BASE, "report"),
    "findings": (*BASE, "report", "ranks"),
    "read": (*BASE, "report", "ranks"),
    "tables": (*BASE, "report", "findings"),
    "export": (*BASE, "report", "findings", "read", "tables"),
    "render": (
        *(*BASE, "report", "ranks", "findings", "read", "tables", "export"),
        "ranks.render",
    ),
    "ranks.render": (*BASE, "report", "ranks", "findings", "tables", "render"),
    "comparison": (*BASE, "report", "read", "tables", "export", "render"),
    "results": (
        *(*BASE, "report", "ranks", "findings", "read", "tables", "export"),
        *("render", "comparison"),
    ),
    "loggers": BASE,
    "session": (
        *(*BASE, "capture", "report", "ranks", "findings", "read"),
        *("tables", "export", "render", "comparison", "results"),
        *("ranks.exchange", "ranks.render"),
    ),
    "ranks.exchange": (*BASE, "capture", "report", "ranks", "session"),
    "integrations": (
        *(*BASE, "capture", "report", "findings", "read"),
        *("render", "results", "session"),
    ),
    "trial": (
        *(*BASE, "report", "findings", "read", "tables"),
        *("comparison", "results", "session"),
    ),
}
#: These stand above all layers; nothing below may import them.
TOP = ("", "__main__", "cli")


def layer_of(module: str) -> str:
    """Return the layer of a module of the package; its first part if it is in none."""
    parts = module.split(".")
    begins = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((begin for begin in begins if begin in MAY_IMPORT), parts[0])


def _module_name(path: Path, package: Path) -> str:
    """Return the dotted name below the package; "" for the package itself."""
    parts = list(path.relative_to(package).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def _absolute(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    """Return the absolute name of the module in a from-import."""
    if node.level == 0:
        return node.module or ""
    inside = [PACKAGE, *filter(None, module.split("."))]
    up = node.level - 1 if is_package else node.level
    base = inside[: len(inside) - up]
    return ".".join([*base, *filter(None, [node.module])])


def imports(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[str]:
    """Yield absolute names of all imports of a module, also by importlib and for typing only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module, is_package=is_package)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            target = node.args[0]
            if (
                name in ("import_module", "__import__")
                and isinstance(target, ast.Constant)
                and isinstance(target.value, str)
            ):
                yield target.value
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(rf"{PACKAGE}(\.[a-z_]+)+(:\w+)?", node.value)
        ):
            # A table of modules, or of their functions, to import by name.
            yield node.value.partition(":")[0]


def _at_import(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the import statements that run when the module is imported."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting.extend(node.orelse)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def _modules(root: Path) -> Iterator[tuple[str, str, ast.Module, bool]]:
    """Yield (path from the root, dotted name, tree, is it a package) of every module."""
    package = root / "python" / PACKAGE
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        name = _module_name(path, package)
        yield path.relative_to(root).as_posix(), name, tree, path.name == "__init__.py"


def direction_violations(root: Path) -> list[str]:
    """Report imports against the layers, and modules that are in no layer."""
    found = []
    for path, module, tree, is_package in _modules(root):
        layer = layer_of(module)
        if layer in TOP:
            continue
        if layer not in MAY_IMPORT:
            found.append(f"{path}: {layer} is in no layer; see tools/layers_python.py")
            continue
        for name in sorted(set(imports(tree, module, is_package=is_package))):
            package, _, inside = name.partition(".")
            if package != PACKAGE:
                continue
            target = layer_of(inside)
            allowed = target == layer or target in MAY_IMPORT[layer]
            if not allowed:
                found.append(f"{path}: {layer} may not import {name}")
    return found


def _arrows(root: Path) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    modules = {name: (tree, is_package) for _, name, tree, is_package in _modules(root)}
    arrows: dict[str, set[str]] = {}
    for module, (tree, is_package) in modules.items():
        arrows[module] = set()
        for name in imports(tree, module, is_package=is_package):
            target = name.removeprefix(PACKAGE).removeprefix(".")
            if target not in modules:  # a name in a module
                target = target.rpartition(".")[0]
            inside = name.split(".")[0] == PACKAGE and not name.startswith(f"{PACKAGE}._core")
            if inside and target in modules:
                arrows[module].add(target)
        arrows[module].discard(module)
    return arrows


def circle_violations(root: Path) -> list[str]:
    """Report modules that reach each other by imports, with every arrow between them."""
    arrows = _arrows(root)
    found = []
    for circle in circles(arrows):
        inside = [
            f"{a or PACKAGE} -> {b or PACKAGE}" for a in circle for b in circle if b in arrows[a]
        ]
        found.append(f"a circle of {len(circle)} modules: {', '.join(inside)}")
    return found


def extension_violations(root: Path) -> list[str]:
    """Report imports of the extension outside of `capture` and `fast`."""
    return [
        f"{path}: only capture and fast may import {PACKAGE}._core"
        for path, module, tree, is_package in _modules(root)
        if module.split(".")[0] not in ("capture", "fast")
        and any(
            name == f"{PACKAGE}._core" or name.startswith(f"{PACKAGE}._core.")
            for name in imports(tree, module, is_package=is_package)
        )
    ]


def dependency_violations(root: Path) -> list[str]:
    """Report imports at import time of anything but the standard library and the package.

    A module named after a framework (`demo_torch`) is its adapter and may import it.
    """
    found = []
    for path, module, tree, is_package in _modules(root):
        if module.split(".")[0] == "integrations":
            continue
        own = module.split(".")[-1].split("_")
        for statement in _at_import(tree):
            for name in imports(statement, module, is_package=is_package):
                top = name.split(".")[0]
                if top not in (PACKAGE, *own) and top not in sys.stdlib_module_names:
                    found.append(f"{path}: imports {name} when it is imported")
    return found


def violations(root: Path) -> list[str]:
    """Return all violations in the tree below `root`."""
    return [
        *direction_violations(root),
        *circle_violations(root),
        *extension_violations(root),
        *dependency_violations(root),
    ]


if __name__ == "__main__":
    lines = violations(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]))
    print("\n".join(lines) if lines else "python: every rule of the layers holds")
    sys.exit(1 if lines else 0)
