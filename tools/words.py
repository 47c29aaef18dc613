"""Finds words that the glossary of docs/style.md replaces, in all text that a reader sees.

    python tools/words.py

Text is: the documents, and comments, docstrings and messages of python/ and csrc/.  The glossary
is a table; its last column has the words that its first one replaces.  Names of variables are no
text, nor is what stands between backquotes.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Decision records are history; nobody rewrites them.
DOCUMENTS = ("*.md", "docs/*.md", "docs/[!d]*/**/*.md")
#: The page that has the glossary, and with it every replaced word.
STYLE = "docs/style.md"
MOST = 25

_ROW = re.compile(
    r"^\| \*\*(?P<word>[^*]+)\*\* \|(?P<meaning>[^|]*)\|(?P<not>[^|]*)\|$", re.MULTILINE
)
_CODE = re.compile(r"```.*?```|``[^`]*``|`[^`\n]*`", re.DOTALL)
_C_TEXT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
#: From 3.12 on an f-string is several tokens.
_STRINGS = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
_FIELD = re.compile(r"\{[^{}]*\}")
#: The arguments before a line of ``Args:``.
_NAMES = re.compile(r"^ +\w+(, \w+)*:", re.MULTILINE)


def glossary(page: str) -> dict[str, str]:
    """Return the replaced words, each with the word to use."""
    return {
        wrong.strip(): row["word"]
        for row in _ROW.finditer(page)
        for wrong in row["not"].split(",")
        if wrong.strip()
    }


def text_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the parts of a file that are text."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, source
    elif path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
            elif token.type in _STRINGS and " " in token.string:  # else a key or a name
                yield token.start[0], _NAMES.sub(_blank, _FIELD.sub(_blank, token.string))
    else:
        for found in _C_TEXT.finditer(source):
            if " " in found[0]:
                yield source.count("\n", 0, found.start()) + 1, found[0]


def _blank(found: re.Match[str]) -> str:
    """Return white space in the place of what is no text, with as many lines."""
    return re.sub(r"[^\n]", " ", found[0])


def files(root: Path) -> Iterator[Path]:
    for pattern in DOCUMENTS:
        yield from root.glob(pattern)
    yield from (root / "python").rglob("*.py")
    yield from (root / "csrc").rglob("*.[ch]")


def violations(root: Path) -> list[str]:
    """Return a line for each replaced word in the text of the files below `root`."""
    words = glossary((root / STYLE).read_text(encoding="utf-8"))
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, words))})\b", re.IGNORECASE)
    found = []
    for path in sorted(set(files(root)) - {root / STYLE}):
        for line, text in text_of(path):
            without = _CODE.sub(_blank, text)
            for match in pattern.finditer(without):
                number = line + without.count("\n", 0, match.start())
                word = match[1].lower()
                name = path.relative_to(root).as_posix()
                found.append(f"{name}:{number}: {match[1]!r}: write {words[word]!r}")
    return found


def main() -> int:
    number = len(_ROW.findall((ROOT / STYLE).read_text(encoding="utf-8")))
    if not 0 < number <= MOST:
        print(f"{STYLE}: the glossary has {number} words, not 1 to {MOST}")
        return 1
    found = violations(ROOT)
    print("\n".join(found) or f"{STYLE}: no word is used that its glossary replaces")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
