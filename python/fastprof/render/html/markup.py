"""Elements of a page, which escape all text, and the blocks that pages share."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import repeat

from fastprof.names import printable_name
from fastprof.report.writers import compact_json
from fastprof.tables.cells import Table

#: JSON may escape every character this way; these begin or end markup.
_MARKUP = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}
#: A longer text is cut: some names have megabytes.
_MOST = 4096


class Markup(str):
    """A string that is markup; any other string becomes text or the value of an attribute."""

    __slots__ = ()


def el(tag: str, *children: str | None, **attributes: object) -> Markup:
    """Return an element in ASCII.

    Args:
        children: markup and text; None is skipped.
        attributes: ``class_`` is ``class``, ``aria_label`` is ``aria-label``; True gives an
            attribute without a value, None and False omit it.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escaped(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inside = "".join(escaped(child) for child in children if child is not None)
    return Markup(f"<{tag}{written}>{inside}</{tag}>")


def escaped(value: object) -> str:
    """Return markup unchanged, and anything else as text without markup and controls."""
    if isinstance(value, Markup):
        return value
    text = escape(printable_name(str(value), _MOST))
    return text if text.isascii() else text.encode("ascii", "xmlcharrefreplace").decode()


def prose(text: str) -> Markup:
    """Return a sentence whose parts between backticks, which are code, become code elements."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # A backtick of a name: it has no partner.
        return joined([text])
    return joined(el("code", part) if i % 2 else part for i, part in enumerate(parts))


def safe_json(value: object) -> str:
    """Return ASCII JSON that is also safe inside a script element."""
    return compact_json(value).translate(_MARKUP)


def joined(parts: Iterable[str | None]) -> Markup:
    """Return elements in sequence."""
    return Markup("".join(escaped(part) for part in parts if part is not None))


def bullets(rows: Sequence[str], tag: str = "ul", **attributes: object) -> Markup | None:
    """Return a list; None if it has no rows."""
    items = Markup("".join(el("li", row) for row in rows))
    return el(tag, items, **attributes) if rows else None


def facts(rows: Iterable[Sequence[str]], **attributes: object) -> Markup:
    """Return names and values as a list."""
    found = (el("div", el("dt", name), el("dd", value)) for name, value in rows)
    return el("dl", Markup("".join(found)), **attributes)


def scrollable(label: str, child: Markup) -> Markup:
    """Return a box that scrolls sideways, by keyboard too."""
    return el("div", child, class_="scroll", tabindex=0, role="region", aria_label=label)


def table(made: Table) -> Markup:
    """Return a table; the script lets a click on a header sort it."""
    rows = made.rows[:-1] if made.total else made.rows
    head = el("tr", *(el("th", h, scope="col", class_=_kind(made, i))
                      for i, h in enumerate(made.headers)))  # fmt: skip
    full = (*made.full, *[""] * (len(rows) - len(made.full)))
    body = Markup("\n".join(map(_row, repeat(made), rows, full)))
    foot = el("tfoot", _row(made, made.rows[-1])) if made.total else None
    drawn = el("table", el("thead", head), el("tbody", body), foot, aria_label=made.title or None)
    title = el("h3", made.title) if made.title else None
    return el("div", title, scrollable(made.title or "Table", drawn), class_="part")


def _row(made: Table, row: Sequence[str], full: str = "") -> Markup:
    name: str = row[0]
    if full not in ("", name):
        name = el("details", el("summary", name), full)
    cells = [el("th", name, scope="row", class_=_kind(made, 0), title=full or row[0])]
    for i, cell in enumerate(row[1:], 1):
        unknown = " na" if cell == "n/a" else ""
        cells.append(el("td", cell, class_=_kind(made, i) + unknown))
    return el("tr", *cells)


def _kind(made: Table, i: int) -> str:
    return "text" if i in made.left else "number"
