"""Checks rules of csrc/ that no compiler checks: directions, circles, versions, globals.

    python3 tools/layers_c.py [ROOT]

prints one line for each violation; the exit status is 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

#: Layer -> layers whose headers it may include.
MAY_INCLUDE = {
    "core": ("core",),
    "gpu": ("core", "gpu"),
    "py": ("core", "gpu", "py"),
}
#: The only file that may test the interpreter's version or build.
COMPAT = "csrc/py/pycompat.h"
#: Headers of the interpreter; only csrc/py may include them.
PYTHON_HEADERS = re.compile(
    r"(Python|patchlevel|pyconfig|pythread|structmember|frameobject)\.h|(cpython|internal)/.*"
)
VERSION_TEST = re.compile(r"\b(PY_VERSION_HEX|PY_M\w+_VERSION|Py_GIL_DISABLED|Py_DEBUG)\b")
PRINTING = re.compile(r"\b(v?f?printf|puts|fputs|putchar|perror|fwrite)\s*\(")
ALLOCATING = re.compile(r"\b(malloc|calloc|realloc|free|strdup)\s*\(")

_COMMENT_OR_LITERAL = re.compile(
    r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
_FUNCTION = re.compile(r"^(\S[^\n]*)\n(\w+)\([^;{}]*\)\s*\{", re.M)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)


def without_comments(text: str, *, literals: bool = False) -> str:
    """Return `text` with comments (and literals) blanked; lines keep their numbers."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if found[0] in "\"'":
            return '""' if literals else found
        return " " + "\n" * found.count("\n")

    return _COMMENT_OR_LITERAL.sub(blank, text)


def _files(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (path from the root, layer, text without comments) of every C file."""
    source = root / "csrc"
    for path in sorted(source.rglob("*.[ch]")):
        layer = path.relative_to(source).parts[0]
        text = without_comments(path.read_text(encoding="utf-8"))
        yield path.relative_to(root).as_posix(), layer, text


def include_violations(root: Path) -> list[str]:
    """Report includes that go up or sideways, and interpreter headers outside csrc/py."""
    found = []
    for name, layer, text in _files(root):
        allowed = MAY_INCLUDE.get(layer)
        if allowed is None:
            found.append(f"{name}: {layer} is no layer; there are {', '.join(MAY_INCLUDE)}")
            continue
        for bracket, header in _INCLUDE.findall(text):
            if PYTHON_HEADERS.fullmatch(header):
                if layer != "py":
                    found.append(f"{name}: {header} belongs to csrc/py only")
            elif bracket == '"' and header.split("/")[0] not in allowed:
                found.append(f'{name}: {layer} may not include "{header}"')
    return found


def version_violations(root: Path) -> list[str]:
    """Report tests of the interpreter's version or build outside pycompat.h."""
    return [
        f"{name}: {test} belongs to {COMPAT}"
        for name, _, text in _files(root)
        if name != COMPAT
        for test in sorted(set(VERSION_TEST.findall(text)))
    ]


def _file_level(text: str) -> Iterator[str]:
    """Yield the declarations and definitions at file level, without the contents of braces."""
    text = _DIRECTIVE.sub("", without_comments(text, literals=True))
    depth = 0
    statement = ""
    for character in text:
        if character == "{":
            depth += 1
            if depth == 1:
                statement += "{}"
        elif character == "}":
            depth -= 1
            # A function's body ends a statement without a semicolon.
            if depth == 0 and re.search(r"\)\s*\{\}$", statement):
                statement = ""
        elif depth == 0:
            if character == ";":
                yield " ".join(statement.split())
                statement = ""
            else:
                statement += character


#: CPython takes tables of these without `const`; nothing writes them.
_TABLES = r"(static )?(struct )?Py(\w+Def|Type_Slot|Type_Spec|ModuleDef_Slot) \w"
#: The page that names each mutable variable of `csrc/py` with its reason and its guard.
_PAGE = "docs/c-variables.md"


def _is_mutable_variable(declaration: str) -> bool:
    if not declaration or re.match(r"(typedef|extern|_Static_assert|static_assert)\b", declaration):
        return False
    if re.fullmatch(r"(struct|union|enum)( \w+)?( \{\})?", declaration):
        return False
    declarator = re.sub(r"\b_Atomic\(([^)]*)\)", r"\1", declaration.split("=")[0])
    if re.match(r"[^(]*\((?!\s*\*)", declarator):
        return False  # a prototype; a pointer to a function opens with "(*"
    # The variable itself must be constant: for a pointer, look after the last asterisk.
    return re.search(r"\bconst\b", declarator.rpartition("*")[2]) is None


def global_violations(root: Path) -> list[str]:
    """Report mutable file-level variables in the pure layers, and `static` ones in functions."""
    found = []
    for name, layer, text in _files(root):
        if layer not in ("core", "gpu"):
            continue
        found += [f"{name}: mutable at file level: {text}" for text in _mutable(text)]
        found += [f"{name}: mutable static: {text}" for text in _mutable_statics(text)]
    return found


def _mutable(text: str) -> Iterator[str]:
    return filter(_is_mutable_variable, _file_level(text))


def _mutable_statics(text: str) -> Iterator[str]:
    for local in re.findall(r"^[ \t]+static\s+([^;({]*)[;=]", text, re.M):
        # The names of arguments are an array that CPython takes without `const`.
        if re.search(r"\bconst\b", local.rpartition("*")[2]) is None and "*names[]" not in local:
            yield " ".join(local.split())


def _variables_of_the_page(page: str) -> Iterator[tuple[str, str]]:
    """Yield file and variable for each row of the table."""
    file = ""
    for line in page.splitlines():
        cells = line.split("|")
        if len(cells) > 3:
            names = re.findall(r"`(\w+)`", cells[2].partition("(")[0])
            file = next(iter(re.findall(r"`(\w+\.c)`", cells[1])), file)
            yield from ((file, name) for name in names)


def page_violations(root: Path) -> list[str]:
    """Report mutable variables of `csrc/py` that the page lacks, and those that it only has."""
    page = root / _PAGE
    listed = set(_variables_of_the_page(page.read_text("utf-8") if page.exists() else ""))
    found = set()
    for name, layer, text in _files(root):
        if layer == "py":
            for declaration in (*_mutable(text), *_mutable_statics(text)):
                if re.match(_TABLES, declaration) is None:
                    variable = re.search(
                        r"(\w+)( ?\[[^\]]*\])*$", declaration.split("=")[0].strip()
                    )
                    found.add((Path(name).name, variable[1] if variable else declaration))
    return [
        *(f"csrc/py/{file}: {name} is not in {_PAGE}" for file, name in sorted(found - listed)),
        *(f"{_PAGE}: {file} has no {name}" for file, name in sorted(listed - found)),
    ]


def thread_local_violations(root: Path) -> list[str]:
    """Report thread-local variables, except the one that the design allows."""
    defined = [
        name
        for name, _, text in _files(root)
        for declaration in _file_level(text)
        if re.search(r"\b(_Thread_local|__thread)\b", declaration)
        and not declaration.startswith("extern")
    ]
    return [f"{name}: a second thread-local variable" for name in defined[1:]]


def purity_violations(root: Path) -> list[str]:
    """Report pure layers that print, or allocate without the allocator they are given."""
    found = []
    for name, layer, text in _files(root):
        if layer not in ("core", "gpu"):
            continue
        text = without_comments(text, literals=True)
        for call in sorted(set(PRINTING.findall(text))):
            found.append(f"{name}: {call}() prints")
        if not name.endswith("/alloc.c"):
            for call in sorted(set(ALLOCATING.findall(text))):
                found.append(f"{name}: {call}() goes round the allocator")
    return found


def _uses(root: Path) -> dict[str, dict[str, str]]:
    """Return file -> files that it includes or calls -> the name that it uses.

    A call is any mention of a name that another file defines: a table that holds a function calls
    it, too.  A header calls the functions that its inline functions call.
    """
    texts = {name: without_comments(text, literals=True) for name, _, text in _files(root)}
    home = {
        symbol: name
        for name, text in texts.items()
        if name.endswith(".c")
        for symbol in _defined(text)
    }
    uses: dict[str, dict[str, str]] = {}
    for name, _, text in _files(root):
        includes = [
            f"csrc/{header}" for bracket, header in _INCLUDE.findall(text) if bracket == '"'
        ]
        uses[name] = dict.fromkeys(includes, "#include")
        code = texts[name] if name.endswith(".c") else "\n".join(_bodies(texts[name]))
        for symbol in sorted(set(re.findall(r"\w+", code)) & home.keys()):
            if home[symbol] != name:
                uses[name][home[symbol]] = symbol
    return uses


def _defined(text: str) -> Iterator[str]:
    """Yield the functions and variables that a .c file defines for others."""
    for before, name in _FUNCTION.findall(text):
        if "static" not in before.split():
            yield name
    for declaration in _file_level(text):
        declarator = declaration.split("=")[0]
        name = re.search(r"(\w+)\s*(\[[^\]]*\]\s*)*$", declarator)
        if "=" in declaration and name and not re.match(r"(static|extern)\b", declaration):
            yield name.group(1)


def _bodies(text: str) -> Iterator[str]:
    """Yield the contents of braces at file level."""
    depth = start = 0
    for at, character in enumerate(_DIRECTIVE.sub("", text)):
        if character == "{":
            start = at if depth == 0 else start
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                yield _DIRECTIVE.sub("", text)[start:at]


def circles(uses: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return groups of names that reach each other: strongly connected components."""
    reached: dict[str, set[str]] = {}
    for name in uses:
        seen: set[str] = set()
        left = [name]
        while left:
            new = set(uses.get(left.pop(), ())) - seen
            seen |= new
            left += new
        reached[name] = seen
    found = {tuple(sorted(f for f in reached[name] if name in reached.get(f, ()))) for name in uses}
    return sorted([*circle] for circle in found if len(circle) > 1)


def circle_violations(root: Path) -> list[str]:
    """Report circles of files, each with the names that connect it."""
    uses = _uses(root)
    lines = []
    for circle in circles(uses):
        if len({file[: -len(".c")] for file in circle}) == 1:
            continue  # a header and its source
        arrows = [
            f"{one} -> {other} ({uses[one][other]})"
            for one in circle
            for other in circle
            if other in uses[one]
        ]
        lines.append(f"a circle of {len(circle)} files: {', '.join(arrows)}")
    return lines


def violations(root: Path) -> list[str]:
    """Return all violations in the tree below `root`."""
    return [
        *include_violations(root),
        *circle_violations(root),
        *version_violations(root),
        *global_violations(root),
        *page_violations(root),
        *thread_local_violations(root),
        *purity_violations(root),
    ]


if __name__ == "__main__":
    lines = violations(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]))
    print("\n".join(lines) if lines else "csrc: every rule of the layers holds")
    sys.exit(1 if lines else 0)
