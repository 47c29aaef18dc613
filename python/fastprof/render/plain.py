"""Blocks as lines of plain text."""

import re
from collections.abc import Iterable

from fastprof.names import elided, readable, text_width
from fastprof.tables.blocks import Block, Chart, Code, Items, Part, Text
from fastprof.tables.layout import table_lines, wrapped

#: The beginning of a line of pstats; the name after it loses its middle.
_FIGURES = re.compile(r" *(?:[0-9./]+ +){5}|")


def plain(blocks: Iterable[Block], width: int | None = None, prose: int | None = None) -> list[str]:
    """Return blocks as lines.

    Args:
        prose: columns of sentences; None: ``width``.
    """
    lines: list[str] = []
    for block in blocks:
        if block.parts and all(isinstance(part, Chart) for part in block.parts):
            continue
        lines += [""] if lines else []
        if block.title:
            lines += _sentence(block.title, prose or width, "", "  ")
        for part in block.parts:
            lines += part_lines(part, width, prose or width)
    return lines


def part_lines(part: Part, width: int | None, prose: int | None) -> list[str]:
    """Return a part of a block as lines; a chart has none."""
    match part:
        case Text():
            return _sentence(part.text, prose, part.first, part.rest)
        case Items():
            found = (_sentence(row, prose, part.first, part.rest) for row in part.rows)
            return [line for lines in found for line in lines]
        case Code():
            return [_code(line, width) for line in part.lines]
        case Chart():
            return []
    title = _sentence(part.title, prose, "", None) if part.title else []
    return [*title, *table_lines(part, width)]


def _sentence(text: str, width: int | None, first: str, rest: str | None) -> list[str]:
    return [first + readable(text)] if width is None else wrapped(text, width, first, rest)


def _code(text: str, width: int | None) -> str:
    text = readable(text)
    if width is None or text_width(text) <= width:
        return text
    figures = _FIGURES.match(text)
    start = figures.end() if figures else 0
    return text[:start] + elided(text[start:], width - start)
