"""Source lines of functions for a page, if the files are unchanged since the run.

A function is shown only if its file has a function of that name at that line.
"""

import inspect
import re
import tokenize
from collections.abc import Iterable, Sequence

from fastprof.names import printable_name
from fastprof.render.html.limits import LIMITS, PageLimits
from fastprof.report.lines import FunctionLines, lines_by_function
from fastprof.report.origin import is_users
from fastprof.report.rows import FunctionRow, key_of
from fastprof.report.source_files import lines_of
from fastprof.snapshot import Snapshot

_LINE = 200
_NO_SAMPLES = FunctionLines(0, ())
#: Decorators may precede ``def``.
_HEAD = 20


class Sources:
    """Reads source lines until the page has no room for more."""

    def __init__(self, snapshot: Snapshot, limits: PageLimits = LIMITS) -> None:
        """Start without any lines.

        Args:
            snapshot: see :func:`lines_of`.
            limits: bounds on functions, lines and characters.
        """
        self._snapshot = snapshot
        self._limits = limits
        self._room = limits.source_characters
        self._files: dict[str, list[str]] = {}
        self._numbers: dict[tuple[str, int, str], int] = {}
        self._sampled = lines_by_function(snapshot)
        #: (first line number, lines, samples of the function, percent of them by line number)
        self.blocks: list[tuple[int, str, int, list[tuple[int, int]]]] = []

    def of(self, rows: Sequence[FunctionRow]) -> list[tuple[int, int]]:
        """Return (number of a row, number of its block) for rows of a table."""
        for i in self._wanted(rows):
            self._add(rows[i])
        numbers = ((i, self._numbers.get(_place(row), -1)) for i, row in enumerate(rows))
        return [(i, number) for i, number in numbers if number >= 0]

    def _wanted(self, rows: Sequence[FunctionRow]) -> Iterable[int]:
        # The program's own functions first: the user can change these.
        python = [i for i, row in enumerate(rows) if row.kind == "python" and row.line]
        users = [i for i in python if is_users(key_of(rows[i]))]
        users.sort(key=lambda i: -rows[i].cum_ms)
        both = dict.fromkeys(users[: self._limits.sources])
        both.update(dict.fromkeys(python[: self._limits.sources]))
        return both

    def _add(self, row: FunctionRow) -> None:
        if _place(row) in self._numbers:
            return
        text = _text(self._lines(row.file), row.name, row.line, self._limits.source_lines)
        fits = 0 < len(text) <= self._room
        self._numbers[_place(row)] = len(self.blocks) if fits else -1
        if fits:
            self._room -= len(text)
            found = self._sampled.get(key_of(row), _NO_SAMPLES)
            shares = [(line.number, round(100 * line.share)) for line in found.lines]
            last = row.line + text.count("\n")
            inside = [share for share in shares if share[1] and row.line <= share[0] <= last]
            self.blocks.append((row.line, text, found.samples, sorted(inside)))

    def _lines(self, path: str) -> list[str]:
        if path not in self._files:
            self._files[path] = lines_of(path, self._snapshot)
        return self._files[path]


def _place(row: FunctionRow) -> tuple[str, int, str]:
    return row.file, row.line, row.name


def _text(lines: Sequence[str], name: str, line: int, most: int) -> str:
    part = list(lines[line - 1 : line - 1 + most])
    if name.isidentifier():
        if not re.search(rf"\b(?:def|class)\s+{name}\b", "".join(part[:_HEAD])):
            return ""
        part = _function(part)
    elif name == "<lambda>":
        if not any("lambda" in text for text in part[:_HEAD]):
            return ""
        part = _function(part)
    elif name != "<module>":
        part = part[:5]  # a comprehension
    shown = [printable_name(text.rstrip("\r\n").expandtabs(4), _LINE) for text in part]
    return "\n".join(shown)


def _function(lines: list[str]) -> list[str]:
    try:
        return inspect.getblock(lines) or lines[:1]
    except (SyntaxError, tokenize.TokenError):  # the function continues after the last line
        return lines
