"""A report in a notebook: the overview and its main tables as a little HTML.

No script, no style sheet, nothing from elsewhere: it looks as the notebook's own tables.
"""

from __future__ import annotations

import html
from typing import TextIO

from fastprof.names import ascii_name
from fastprof.report.model import Report
from fastprof.tables.cells import Table, duration
from fastprof.tables.overview import known_figures
from fastprof.tables.report import functions, steps_table

_FUNCTIONS = 10
_FINDINGS = 5


def write(report: Report, stream: TextIO) -> None:
    """Write the fragment."""
    stream.write(f"<div><p><b>fastprof report</b>: {duration(report.wall_ms)} recorded</p>\n")
    figures = tuple((figure.name, figure.value) for figure in known_figures(report))
    stream.write(_table(Table("", ("", ""), figures, left=frozenset({0, 1}))))
    for finding in report.findings[:_FINDINGS]:
        said = " ".join(_text(sentence) for sentence in (*finding.evidence, *finding.fix))
        stream.write(f"<p><b>{_text(finding.title)}</b> {said}</p>\n")
    stream.write(_table(steps_table(report)))
    title = "Functions, most self time first ({} of {})"
    stream.write(_table(functions(report.functions, title, _FUNCTIONS)))
    notes = "".join(f"<li>{_text(note)}</li>" for note in report.notes)
    if notes:
        stream.write(f"<details><summary>Notes</summary><ul>{notes}</ul></details>\n")
    stream.write("</div>\n")


def _table(table: Table) -> str:
    if not table.rows:
        return ""

    def cells(tag: str, row: tuple[str, ...]) -> str:
        aligned = (
            f'<{tag} style="text-align:{"left" if i in table.left else "right"}">'
            f"{html.escape(cell)}</{tag}>"
            for i, cell in enumerate(row)
        )
        return f"<tr>{''.join(aligned)}</tr>"

    caption = f"<caption>{html.escape(table.title)}</caption>" if table.title else ""
    head = f"<thead>{cells('th', table.headers)}</thead>" if any(table.headers) else ""
    body = "".join(cells("td", row) for row in table.rows)
    return f"<table>{caption}{head}<tbody>{body}</tbody></table>\n"


def _text(text: str) -> str:
    return html.escape(ascii_name(text, 1000))
