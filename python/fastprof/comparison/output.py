"""A comparison as text, Markdown, HTML and JSON.

JSON is one object with the fields of :class:`~fastprof.comparison.model.Comparison`, "changed" and
the schema "fastprof.comparison/1"; a change has its "difference" and "relative" as well.

Times are milliseconds, changes fractions of the value before; an unknown value is null.
"""

import json
import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from fastprof.comparison.layout import blocks
from fastprof.comparison.model import Change, Comparison, Effect
from fastprof.fileio import atomic_write, resolve_output
from fastprof.render.formats import format_of
from fastprof.render.html import blocks_page
from fastprof.render.markdown import markdown
from fastprof.render.plain import plain
from fastprof.report.writers import plain_values

SCHEMA = "fastprof.comparison/1"

_DERIVED: dict[type, tuple[str, ...]] = {
    Effect: ("change", "detectable"),
    Change: ("difference", "relative"),
}


def to_text(comparison: Comparison, width: int | None = None, *, full: bool = True) -> str:
    """Return the comparison as plain text.

    Args:
        full: all tables and notes; False: one screen.
    """
    return "\n".join(plain(blocks(comparison, full=full), width)) + "\n"


def to_markdown(comparison: Comparison) -> str:
    return "\n".join(markdown(blocks(comparison), 1)) + "\n"


def to_html(comparison: Comparison) -> str:
    return blocks_page(blocks(comparison))


def to_json(comparison: Comparison) -> str:
    data = {"schema": SCHEMA, **plain_values(comparison, _fields)}
    del data["tops"], data["steps"]
    data["changed"] = comparison.changed
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _fields(value: Any) -> dict[str, Any]:
    names = [*(f.name for f in fields(value)), *_DERIVED.get(type(value), ())]
    return {name: getattr(value, name) for name in names}


#: Format -> the function that returns a comparison's text in it.
WRITERS: dict[str, Callable[[Comparison], str]] = {
    "text": to_text,
    "json": to_json,
    "html": to_html,
    "markdown": to_markdown,
}


def save(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write a comparison to a file."""
    text = WRITERS[format_of(path, WRITERS).name](comparison)
    with atomic_write(resolve_output(path)) as stream:
        stream.write(text.encode("utf-8"))
