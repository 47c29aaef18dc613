"""Blocks as elements of a page."""

from fastprof.render.html.charts import figure
from fastprof.render.html.markup import Markup, bullets, el, escaped, scrollable, table
from fastprof.tables.blocks import Chart, Code, Items, Part, Text


def drawn(part: Part) -> Markup | None:
    """Return a part of a block as an element."""
    match part:
        case Text():
            return el("p", part.text)
        case Items():
            alone = len(part.rows) == 1
            return (
                el("p", *part.rows, class_="notes") if alone else bullets(part.rows, class_="notes")
            )
        case Code():
            code = el("pre", el("code", Markup("\n".join(map(escaped, part.lines)))))
            return el("div", scrollable("Code", code), class_="source")
        case Chart():
            return figure(part)
    return table(part)
