"""A comparison as one HTML file: the blocks of the text, and a chart of the steps' times.

It has no script and loads nothing.  Every text in it is printable ASCII with markup escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fastprof.comparison.layout import Block, blocks
from fastprof.comparison.model import Comparison
from fastprof.comparison.steps_chart import steps_chart
from fastprof.names import ascii_name
from fastprof.render.html import page_style
from fastprof.tables.cells import Table

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<header>
<div class="heading">
<h1>{title}</h1>
</div>
</header>
<main>
{parts}
</main>
</body>
</html>
"""


def to_html(comparison: Comparison) -> str:
    """Return the comparison as one page."""
    head, *rest = blocks(comparison)
    parts = [_section("", _lines(head.lines))] if head.lines else []
    chart = steps_chart(comparison.labels, comparison.steps)
    if chart:
        parts.append(_section("Step times", chart))
    parts += [_section(block.title, _body(block)) for block in rest]
    return _PAGE.format(
        policy=escape(_POLICY), title=_text(head.title), style=page_style(), parts="\n".join(parts)
    )


def _text(text: str) -> str:
    return escape(ascii_name(text, 2000))


def _section(title: str, body: str) -> str:
    heading = f"<h2>{_text(title.strip('= '))}</h2>\n" if title else ""
    return f"<section>\n{heading}{body}</section>"


def _body(block: Block) -> str:
    body = _lines(block.lines)
    if block.verbatim:
        text = "\n".join(_text(line) for line in block.verbatim)
        body += f'<div class="source"><div class="scroll"><pre>{text}</pre></div></div>\n'
    if block.table is not None:
        body += _table(block.table)
    return body


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"<p>{_text(line)}</p>\n" for line in lines)


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_class(table, i)}>{_text(header)}</th>'
        for i, header in enumerate(table.headers)
    )
    rows = "\n".join(f"<tr>{_row(table, row)}</tr>" for row in table.rows)
    return (
        '<div class="scroll" tabindex="0"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>\n"
    )


def _row(table: Table, row: Sequence[str]) -> str:
    first = f'<th scope="row" class="text" title="{_text(row[0])}">{_text(row[0])}</th>'
    return first + "".join(
        f"<td{_class(table, i)}>{_text(cell)}</td>" for i, cell in enumerate(row) if i
    )


def _class(table: Table, i: int) -> str:
    return ' class="text"' if i in table.left else ""
