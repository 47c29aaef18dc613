"""Lines no wider than the terminal: prose wraps at words, tables drop columns.

A table that is too wide first loses its spare columns.  Then text cells wrap at words, and long
names lose their middle or their ends.  If it is still too wide, it loses its last columns, or is
split into several parts, one below the other, each with the columns that name the row.
"""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TextIO

from fastprof.names import elided, ends_cut, head, readable, text_width
from fastprof.tables.cells import Table

#: Width of a text that goes to a file, or to a pipe without ``COLUMNS``.
PIPED = 100
#: A narrower terminal gets lines of this width.
_NARROWEST = 40
#: Fewest characters of a name, and columns of a cell of words: the usual and the least number.
_NAME, _WORDS, _FEWEST_WORDS = 20, 24, 14
#: Columns by which longer names are tried in a table of several parts.
_FINER = 2
_GAP = "  "
#: Keeps a number and its unit in one line; the tie is not a printable character.
_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|us|s|[KMG]iB)\b|%)")
_TIE = "\0"
#: A point in a name or a number does not end a sentence.
_WORD = re.compile("( *)([^ ]+)")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z`])")


def width_of(stream: TextIO) -> int:
    """Return the columns of lines for ``stream``.

    They are those of the terminal, unless the variable ``COLUMNS`` has another number.  An object
    without ``isatty`` may pass the lines on to the standard output that it replaced.
    """
    known = stream if hasattr(stream, "isatty") else sys.__stdout__
    try:
        terminal = known is not None and known.isatty()
    except ValueError:  # a closed one
        terminal = False
    known_width = terminal or os.environ.get("COLUMNS")
    return max(_NARROWEST, shutil.get_terminal_size().columns) if known_width else PIPED


def wrapped(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Return ``text`` as lines of at most ``width`` columns.

    Args:
        text: a sentence; what does not print is escaped.
        width: columns of a line, indents included.
        first: prefix of the first line.
        rest: prefix of the others; None: blanks as wide as ``first``.
    """
    rest = " " * len(first) if rest is None else rest
    lines = _wrapped(_UNIT.sub(_TIE, readable(text)), width, first, rest)
    return [line.replace(_TIE, " ") for line in lines] or [first.rstrip()]


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Return ``text`` as lines, as :mod:`textwrap` does, which counts characters, not columns.

    A word that is wider than a line begins where it stands, and is broken at the lines' ends.
    """
    lines: list[str] = []
    line, begun, full = first, False, width - text_width(rest)
    room = width - text_width(first)
    for gap, word in _WORD.findall(text):
        left = gap + word if begun else word
        while text_width(left) > room:
            if text_width(word) > full:
                part = head(left, room) or ("" if begun else left[0])
                line, left = line + part, left[len(part) :]
            lines.append(line.rstrip())
            line, begun, room, left = rest, False, full, left.lstrip(" ")
        line, begun, room = line + left, True, room - text_width(left)
    return [*lines, line.rstrip()] if begun else lines


def whole_sentences(
    text: str, width: int, most: int, first: str = "", rest: str | None = None
) -> list[str]:
    """Return as many whole sentences as fit ``most`` lines, wrapped; the first one always."""
    sentences = _SENTENCE_END.split(text)
    for count in range(len(sentences), 1, -1):
        lines = wrapped(" ".join(sentences[:count]), width, first, rest)
        if len(lines) <= most:
            return lines
    return wrapped(sentences[0], width, first, rest)


def table_lines(table: Table, width: int | None = None) -> list[str]:
    """Return a table as lines: the headers, a rule, the rows.

    Args:
        table: what to show.
        width: columns of a line; None: unlimited.
    """
    table = as_readable(table)
    if width is None:
        return _drawn(table, _widths(table))
    table = without_spare(table, width)
    for header in table.last:
        if _fits_narrowed(table, width):
            break
        table = _without(table, header)
    parts = [table] if _fits(table, width) else _split(table, width)
    lines: list[str] = []
    for part in parts:
        lines += [""] if lines else []
        lines += _drawn(part, _squeezed(part, width))
    return lines


def as_readable(table: Table) -> Table:
    """Return the table with everything that does not print escaped."""
    return replace(table, rows=tuple(tuple(map(readable, row)) for row in table.rows))


def needed(table: Table) -> int:
    """Return the width of a table as text."""
    return sum(widths := _widths(table)) + len(_GAP) * (len(widths) - 1)


def without_spare(table: Table, width: int) -> Table:
    """Return the table without the spare columns that do not fit."""
    for header in table.spare:
        if _fits(table, width):
            break
        table = _without(table, header)
    return table


def without_unknown(table: Table) -> Table:
    """Return the table without columns that are unknown in all rows."""
    kept = [
        i
        for i in range(len(table.headers))
        if not table.rows or any(row[i] not in ("", "n/a") for row in table.rows)
    ]
    return _columns(table, kept)


def _widths(table: Table) -> list[int]:
    cells = [table.headers, *table.rows]
    return [max(text_width(row[i]) for row in cells) for i in range(len(table.headers))]


def _fits(table: Table, width: int) -> bool:
    return needed(table) <= width


def _fits_narrowed(table: Table, width: int) -> bool:
    return _fits_squeezed(_narrowed(table, width), width)


def _fits_squeezed(table: Table, width: int) -> bool:
    widths = _squeezed(table, width)
    return sum(widths) + len(_GAP) * (len(widths) - 1) <= width


def _without(table: Table, header: str) -> Table:
    return _columns(table, [i for i, h in enumerate(table.headers) if h != header])


def _columns(table: Table, kept: Sequence[int]) -> Table:
    return replace(
        table,
        headers=tuple(table.headers[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
        left=frozenset(new for new, old in enumerate(kept) if old in table.left),
        whole=frozenset(new for new, old in enumerate(kept) if old in table.whole),
        ends=frozenset(new for new, old in enumerate(kept) if old in table.ends),
    )


def _is_words(table: Table, i: int) -> bool:
    return i in table.left - table.whole - table.ends and any(" " in row[i] for row in table.rows)


def _squeezed(table: Table, width: int) -> list[int]:
    """Return the columns' widths, with columns of words as narrow as they must be."""
    widths = _widths(table)
    excess = needed(table) - width
    words = [i for i in range(len(widths)) if _is_words(table, i)]
    for i in sorted(words, key=lambda i: -widths[i]):
        if excess <= 0:
            break
        narrow = max(min(widths[i], _WORDS), len(table.headers[i]), widths[i] - excess)
        excess -= widths[i] - narrow
        widths[i] = narrow
    least = {i: min(widths[i], max(_FEWEST_WORDS, _longest_word(table, i))) for i in words}
    if excess <= sum(widths[i] - least[i] for i in words):
        while excess > 0:
            widest = max((i for i in words if widths[i] > least[i]), key=lambda i: widths[i])
            widths[widest] -= 1
            excess -= 1
    return widths


def _longest_word(table: Table, i: int) -> int:
    words = (word for row in table.rows for word in row[i].split(" "))
    return max(len(table.headers[i]), *map(text_width, words))


def _narrowed(table: Table, width: int) -> Table:
    """Return the table with shortened names, if wrapping words alone does not save enough."""
    widths = _squeezed(table, width)
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    names = [i for i in table.left if not _is_words(table, i)]
    for _ in range(excess):
        # Shorten the widest names first, so that none is cut short next to one with room to spare.
        wide = [i for i in names if widths[i] > max(_NAME, len(table.headers[i]))]
        if not wide:
            break
        widths[max(wide, key=lambda i: (widths[i], -i))] -= 1
    columns: list[Sequence[str]] = list(zip(*table.rows, strict=True))
    for i in names if columns else ():
        cells, width = columns[i], widths[i]
        columns[i] = (
            ends_cut(cells, width) if i in table.ends else [elided(cell, width) for cell in cells]
        )
    return replace(table, rows=tuple(zip(*columns, strict=True)))


def _split(table: Table, width: int) -> list[Table]:
    """Return the table with shortened names, in as few parts as that allows.

    In several parts names have more room than with all columns.
    """
    parts = _parts(_narrowed(table, width), width)
    if len(parts) == 1:
        return parts
    for room in range(needed(table), width, -_FINER):
        wider = _parts(_narrowed(table, room), width)
        if len(wider) <= len(parts) and all(_fits_squeezed(part, width) for part in wider):
            return wider
    return parts


def _parts(table: Table, width: int) -> list[Table]:
    """Return the table split into several, each with the left columns that name a row."""
    widths = _squeezed(table, width)
    names = 0
    while names < len(widths) - 1 and names in table.left:
        names += 1
    head = list(range(names))
    base = sum(widths[:names]) + len(_GAP) * names

    def split(limit: int) -> list[list[int]]:
        parts: list[list[int]] = []
        used = limit
        for i in range(names, len(widths)):
            size = widths[i] + len(_GAP)
            if used + size - len(_GAP) > limit:
                parts.append([*head])
                used = base
            parts[-1].append(i)
            used += size
        return parts

    parts = split(width)
    for limit in range(width, base, -1):  # parts of about the same width
        even = split(limit)
        if len(even) > len(parts):
            break
        parts = even
    made = [_columns(table, part) for part in parts]
    if len(made) == 1:
        return made
    # A row that is empty in one part is in the others.
    said = (replace(p, rows=tuple(r for r in p.rows if any(r[names:]))) for p in made)
    return [part for part in said if part.rows] or made[:1]


def _drawn(table: Table, widths: Sequence[int]) -> list[str]:
    rule = _GAP.join("-" * width for width in widths)
    out = [_line(table, table.headers, widths), rule]
    for row in table.rows:
        out += _row_lines(table, row, widths)
    return out


def _row_lines(table: Table, row: Sequence[str], widths: Sequence[int]) -> list[str]:
    cells = [
        _wrapped(cell, widths[i]) if text_width(cell) > widths[i] else [cell]
        for i, cell in enumerate(row)
    ]
    return [
        _line(table, tuple(lines[k] if k < len(lines) else "" for lines in cells), widths)
        for k in range(max(map(len, cells)))
    ]


def _line(table: Table, row: Sequence[str], widths: Sequence[int]) -> str:
    spaces = [" " * (width - text_width(cell)) for cell, width in zip(row, widths, strict=True)]
    return _GAP.join(
        cell + space if i in table.left else space + cell
        for i, (cell, space) in enumerate(zip(row, spaces, strict=True))
    ).rstrip()
