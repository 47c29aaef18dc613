"""A report in a notebook: the overview and its main tables as a small piece of HTML.

No script, no style sheet, no other file: it looks like the notebook's own tables.
"""

from typing import TextIO

from fastprof.names import ascii_name
from fastprof.render.html.markup import Markup, bullets, el, joined
from fastprof.report.findings import Finding
from fastprof.report.model import Report
from fastprof.tables.cells import Table, duration
from fastprof.tables.overview import known_figures
from fastprof.tables.report import functions, steps_table

_FUNCTIONS = 10
_FINDINGS = 5


def write(report: Report, stream: TextIO) -> None:
    """Write the fragment."""
    title = "Functions, most self time first ({} of {})"
    notes = bullets([ascii_name(note, 1000) for note in report.notes])
    parts = (
        el("p", el("b", "fastprof report"), f": {duration(report.wall_ms)} recorded"),
        _table(Table("", ("", ""), known_figures(report), left=frozenset({0, 1}))),
        *map(_finding, report.findings[:_FINDINGS]),
        _table(steps_table(report)),
        _table(functions(report.functions, title, _FUNCTIONS)),
        el("details", el("summary", "Notes"), notes) if notes else None,
    )
    stream.write(el("div", joined(parts)) + "\n")


def _finding(finding: Finding) -> Markup:
    said = " ".join(ascii_name(text, 1000) for text in (*finding.evidence, *finding.fix))
    return el("p", el("b", ascii_name(finding.title, 1000)), f" {said}")


def _table(table: Table) -> Markup | None:
    def row(tag: str, cells: tuple[str, ...]) -> Markup:
        aligned = (
            el(tag, cell, style=f"text-align:{'left' if i in table.left else 'right'}")
            for i, cell in enumerate(cells)
        )
        return el("tr", *aligned)

    if not table.rows:
        return None
    caption = el("caption", table.title) if table.title else None
    head = el("thead", row("th", table.headers)) if any(table.headers) else None
    return el("table", caption, head, el("tbody", *(row("td", cells) for cells in table.rows)))
