"""Self-contained HTML pages: no network, no other file.

A page's policy allows only its own scripts, by their hash.  Text is escaped (:mod:`.markup`).  The
scripts' data is JSON in which no markup can begin, and the scripts insert it as text only.  So no
name in a recording becomes an element, a handler or a link.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any, TextIO

from fastprof.names import elided, readable
from fastprof.render.html.chapters import chapters, tiles
from fastprof.render.html.charts import figure
from fastprof.render.html.data import page_data
from fastprof.render.html.markup import (
    Markup,
    bullets,
    el,
    escaped,
    joined,
    safe_json,
    scrollable,
    table,
)
from fastprof.report.model import Report
from fastprof.tables.blocks import Block, Chart, Code, Items, Part, Text
from fastprof.tables.report import summary

#: In the order of their dependencies; the last one starts the page.
SHARED_SCRIPTS = ("dom.js", "theme.js", "table.js", "charts.js", "start.js")
SCRIPTS = (
    *SHARED_SCRIPTS[:-1], "calls.js", "functions.js", "flame_tree.js", "flame_fold.js",
    "flame_view.js", "flame.js", "page.js", *SHARED_SCRIPTS[-1:],
)  # fmt: skip
STYLES = ("page.css", "parts.css", "print.css")

_NO_SCRIPT = (
    "The flame graph and the functions are drawn by the script inside this page: allow scripts "
    "for this file. Nothing is loaded from anywhere."
)


def write(report: Report, stream: TextIO) -> None:
    data = page_data(report)
    made = chapters(report, data)
    command = report.meta.get("command")
    program = f"{elided(readable(str(command), 1000), 60)}: " if command else ""
    links = (el("a", title, href=f"#{mark}") for mark, title, _ in made)
    stream.write(
        page(
            f"{program}fastprof report",
            [tiles(report), el("noscript", el("p", _NO_SCRIPT)),
             *(chapter(title, content, mark) for mark, title, content in made)],
            summary=el("p", " ".join(summary(report)[1:]), id="summary"),
            chapters=el("nav", *links, id="chapters", aria_label="Chapters"),
            data=data,
            scripts=SCRIPTS,
        )
    )  # fmt: skip


def blocks_page(blocks: Sequence[Block]) -> str:
    """Return blocks as a page; the title of the first block is the page's."""
    parts = [(block.title.strip("= "), joined(map(_drawn, block.parts))) for block in blocks]
    (title, first), *rest = parts
    made = [el("section", first)] if first else []
    made += [el("section", el("h2", name) if name else None, body) for name, body in rest]
    return page(title, made)


def _drawn(part: Part) -> Markup | None:
    match part:
        case Text():
            return el("p", part.text)
        case Items() if len(part.rows) == 1:
            return el("p", *part.rows, class_="notes")
        case Items():
            return bullets(part.rows, class_="notes")
        case Code():
            code = el("pre", el("code", Markup("\n".join(map(escaped, part.lines)))))
            return el("div", scrollable("Code", code), class_="source")
        case Chart():
            return figure(part)
    return table(part)


def chapter(title: str, content: Markup, mark: str) -> Markup:
    """Return a chapter with an anchor."""
    heading = el("h2", title, id=f"{mark}-title")
    return el("section", heading, content, id=mark, aria_labelledby=f"{mark}-title")


def page(
    title: str,
    content: Sequence[Markup],
    *,
    summary: Markup | None = None,
    chapters: Markup | None = None,
    data: dict[str, Any] | None = None,
    scripts: Sequence[str] = SHARED_SCRIPTS,
) -> str:
    script = "(() => {\n" + "\n".join(_asset("js", name) for name in scripts) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    held = None
    if data is not None:
        held = el("script", Markup(safe_json(data)), type="application/json", id="data")
    return Template(_asset("templates", "page.html")).substitute(
        policy=escaped(policy),
        title=escaped(title),
        style=_style(),
        summary=summary or "",
        chapters=chapters or "",
        content="\n".join(content),
        data=held or "",
        script=script,
    )


@cache
def _style() -> str:
    text = "\n".join(_asset("css", name) for name in STYLES)
    return text.replace("/* dark.css */", _asset("css", "dark.css"))


@cache
def _asset(folder: str, name: str) -> str:
    text = files(__name__).joinpath(folder).joinpath(name).read_text(encoding="utf-8")
    # A browser hashes the text with these line ends.
    return text.replace("\r\n", "\n")
