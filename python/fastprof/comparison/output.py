"""A comparison as text, Markdown and JSON; :mod:`fastprof.comparison.page` makes the page.

JSON is one object with the fields of :class:`~fastprof.comparison.model.Comparison`::

    {"schema": "fastprof.comparison/1", "labels": [...], "runs": [...], "basis": "step",
     "level": 0.95, "noise": 0.02, "changed": true,
     "pairs": [{"before", "after",
                "summary":   [{"name", "unit", "before", "after", "relative"}],
                "settings":  [{"name", "before", "after", "matters"}],
                "effects":   [{"name", "kind", "before_ms", "after_ms", "difference_ms",
                               "low_ms", "high_ms", "change", "p", "p_adjusted", "verdict",
                               "reason", "detectable_ms", "median": {...}, ...}],
                "sections", "functions", "kernels", "loaders":
                             [{"name", "place", "status", "figures": {"self_ms":
                               {"before", "after", "difference", "relative"}}}],
                "notes": ["..."]}]}

Times are milliseconds, changes fractions of the value before; what is not known is null.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from fastprof.comparison.layout import Block, blocks
from fastprof.comparison.model import Change, Comparison, Effect
from fastprof.fileio import atomic_write, resolve_output
from fastprof.names import ascii_name, elided
from fastprof.render.formats import unknown_format
from fastprof.report.writers import plain
from fastprof.tables.cells import Table
from fastprof.tables.layout import table_lines, wrapped

SCHEMA = "fastprof.comparison/1"

_PSTATS_FIGURES = re.compile(r" *(?:[0-9./]+ +){5}")

_DERIVED: dict[type, tuple[str, ...]] = {
    Effect: ("change", "change_low", "change_high", "detectable"),
    Change: ("difference", "relative"),
    Comparison: ("changed",),
}


def to_text(comparison: Comparison, width: int | None = None) -> str:
    """Return the comparison as plain ASCII text.

    Args:
        comparison: what to write.
        width: columns of a line; None: as many as it takes.
    """
    out: list[str] = []
    for block in blocks(comparison):
        out += ["", *_titled(block, width)] if out else _titled(block, width)
    return "\n".join(out) + "\n"


def _titled(block: Block, width: int | None) -> list[str]:
    lines = _prose(block.title, width) if block.title else []
    for line in block.lines:
        lines += _prose(ascii_name(line), width)
    for line in block.verbatim:
        lines.append(_pstats_line(ascii_name(line), width))
    if block.table is not None:
        lines += table_lines(block.table, width)
    return lines


def _pstats_line(text: str, width: int | None) -> str:
    """Return a line of pstats, whose figures stand before the name: that loses its middle."""
    if width is None or len(text) <= width:
        return text
    figures = _PSTATS_FIGURES.match(text)
    start = figures.end() if figures else 0
    return text[:start] + elided(text[start:], width - start)


def _prose(text: str, width: int | None) -> list[str]:
    return [text] if width is None else wrapped(text, width, rest="  ")


def to_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown, to be pasted into a ticket."""
    out: list[str] = []
    for i, block in enumerate(blocks(comparison)):
        if block.title:
            out += [f"{'#' if i == 0 else '##'} {_escape(block.title.strip('= '))}", ""]
        out += [f"- {_escape(ascii_name(line))}" for line in block.lines]
        if block.verbatim:
            # Indented: no name can end it.
            out += [f"    {ascii_name(line)}".rstrip() for line in block.verbatim]
        if block.table is not None:
            out += [""] if block.lines else []
            out += _markdown_table(block.table)
        out.append("")
    return "\n".join(out).rstrip("\n") + "\n"


def _markdown_table(table: Table) -> list[str]:
    rule = [":---" if i in table.left else "---:" for i in range(len(table.headers))]
    return [
        "| " + " | ".join(cells) + " |"
        for cells in (
            [_escape(cell) for cell in table.headers],
            rule,
            *([_escape(cell) for cell in row] for row in table.rows),
        )
    ]


_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def _escape(text: str) -> str:
    return "".join(_HTML.get(c, "\\" + c if c in "\\`*_{}[]#|~!" else c) for c in text)


def to_json(comparison: Comparison) -> str:
    """Return the comparison as JSON in ASCII."""
    data = {"schema": SCHEMA, **plain(comparison, _members)}
    del data["tops"], data["steps"]
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _members(value: Any) -> dict[str, Any]:
    names = (*(f.name for f in fields(value)), *_DERIVED.get(type(value), ()))
    return {name: getattr(value, name) for name in names}


def save(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write a comparison to a file; see :meth:`Comparison.save`."""
    text = renderer(path)(comparison)
    with atomic_write(resolve_output(path)) as stream:
        stream.write(text.encode("utf-8"))


def renderer(path: str | os.PathLike[str]) -> Callable[[Comparison], str]:
    """Return the function that makes the text for a path's suffix.

    Raises:
        ExportError: there is none.
    """
    made: dict[str, Callable[[Comparison], str]] = {
        ".txt": to_text,
        ".md": to_markdown,
        ".json": to_json,
        ".html": Comparison.to_html,
        ".htm": Comparison.to_html,
    }
    suffix = Path(path).suffix.lower()
    if suffix not in made:
        raise unknown_format(Path(path).name, made)
    return made[suffix]


__all__: Sequence[str] = ("SCHEMA", "renderer", "save", "to_json", "to_markdown", "to_text")
