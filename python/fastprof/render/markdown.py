"""A summary in Markdown, sized for a ticket or a chat: 60 lines and 4 kB at most.

Names are code spans, in which nothing is markup, a link or a mention; a backtick or a pipe in one
becomes ``\\x60`` or ``\\x7c``. Sentences have the markup of Markdown and HTML escaped.
"""

import re
from collections.abc import Sequence
from typing import TextIO

from fastprof._version import __version__
from fastprof.findings.examine import examine
from fastprof.names import readable
from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.report.targets import target_text
from fastprof.tables.blocks import Block, Chart, Code, Items, Part, Text
from fastprof.tables.cells import Table, duration, number, percent, shortened
from fastprof.tables.compilations import compile_brief
from fastprof.tables.overview import known_figures
from fastprof.tables.report import calls, place
from fastprof.tables.steps import row_name

MAX_LINES = 60
MAX_BYTES = 4096

#: Longest name and sentence.
_NAME = 48
_SENTENCE = 240

#: Rows of each list; the next smaller number if the whole is too long.
_ROWS = (8, 6, 4, 3, 2, 1)


def write(report: Report, stream: TextIO) -> None:
    """Write the summary."""
    stream.write(summary(report))


def summary(report: Report) -> str:
    """Return the summary, within :data:`MAX_LINES` and :data:`MAX_BYTES`."""
    for rows in _ROWS:
        lines = markdown(_blocks(report, rows), 3)
        if _fits(lines):
            break
    while not _fits(lines):  # names consisting of markup
        del lines[-1]
    return "\n".join(lines) + "\n"


def _fits(lines: Sequence[str]) -> bool:
    return len(lines) <= MAX_LINES and sum(len(line.encode()) + 1 for line in lines) <= MAX_BYTES


def _blocks(report: Report, rows: int) -> list[Block]:
    overview = Table("", ("", ""), known_figures(report), left=frozenset({0, 1}))
    made: tuple[Part, ...] = (
        overview,
        _steps(report, rows),
        *_split(report),
        _functions(report, rows),
        *compile_brief(report, min(rows, 4)),
        *_findings(report, min(rows, 5)),
        *_notes(report, min(rows, 4)),
        Text(shortened(_origin(report), 400)),
    )
    return [Block(f"fastprof: {_headline(report)}", made)]


def _headline(report: Report) -> str:
    if report.stages:
        return f"{plural(report.measured_steps, 'step')} in {plural(len(report.stages), 'stage')}"
    if report.shown_steps.mean_ms is not None:
        return f"{duration(report.shown_steps.mean_ms)} per step"
    return f"{duration(report.wall_ms)} recorded"


def _steps(report: Report, limit: int) -> Table:
    """Return the parts of a step; in the table's own order unless rows must be left out."""
    rows: Sequence[tuple[str, float | None, float | None]]
    if report.shown_steps.wall_ns is not None:
        titles = ("section", "ms per step", "share %", "target %")
        rows = [(r.name, r.mean_ms, r.share) for r in report.shown_steps.rows]
    else:
        titles = ("section", "total ms", "share %", "target %")
        rows = [(r.name, r.total_ms, r.share) for r in report.sections]
    largest = sorted(rows, key=lambda r: -(r[1] or 0.0))[:limit]
    cells = [
        (name, number(ms), percent(share), target_text(name))
        for name, ms, share in (row for row in rows if row in largest)
    ]
    return Table("", titles, tuple(cells[:limit]))


def _split(report: Report) -> list[Part]:
    parts = [
        f"{row_name(row)} {number(row.mean_ms)} ms ({percent(row.share)} %)"
        for row in sorted(report.shown_steps.split, key=lambda r: -r.total_ns)
        if row.total_ns
    ]
    return [Text(f"Each step's time: {shortened(', '.join(parts), 400)}.")] if parts else []


def _functions(report: Report, limit: int) -> Table:
    cells = tuple(
        (r.qualname or r.name, number(r.self_ms), percent(r.share), calls(r), place(r))
        for r in report.functions[:limit]
    )
    headers = ("function", f"{report.mark}self ms", "share %", f"{report.mark}calls", "defined at")
    return Table("", headers, cells, left=frozenset({0, 4}))


def _findings(report: Report, limit: int) -> list[Part]:
    leads, rows = [], []
    for finding in examine(report).findings[:limit]:
        saving = f", estimated saving {finding.saving}" if finding.saving else ""
        saving += f", measured {finding.measured}" if finding.measured else ""
        said = [shortened(s, _SENTENCE) for s in (*finding.evidence[:1], *finding.fix[:1])]
        leads.append(shortened(finding.title, _SENTENCE))
        rows.append(". ".join(s.rstrip(".") for s in (saving, *said)) + ".")
    return [Text("Findings:"), Items(tuple(rows), leads=tuple(leads))] if rows else []


def _notes(report: Report, limit: int) -> list[Part]:
    rows = [shortened(note, _SENTENCE) for note in report.notes[:limit]]
    left = len(report.notes) - len(rows)
    if left > 0:
        rows.append(f"and {plural(left, 'more note')} in the report")
    return [Text("Notes:"), Items(tuple(rows))] if rows else []


def _origin(report: Report) -> str:
    meta = report.meta
    parts = [f"fastprof {__version__}"]
    for key, label in (("python", "Python"), ("backend", "backend"), ("rank", "rank")):
        if meta.get(key) is not None:
            parts.append(f"{label} {readable(str(meta[key]), 30)}")
    return f"{', '.join(parts)}. {report.overhead.text}"


# ---- blocks as Markdown ----


def markdown(blocks: Sequence[Block], level: int) -> list[str]:
    """Return blocks as lines; the first title has ``level``, the others the next one."""
    out: list[str] = []
    for i, block in enumerate(blocks):
        parts = [lines for lines in map(_lines, block.parts) if lines]
        if block.title and (parts or not block.parts):
            out += ["", f"{'#' * (level + (i > 0))} {sentence(block.title.strip('= '), 1000)}"]
        for lines in parts:
            out += ["", *lines]
    return out[1:]


def _lines(part: Part) -> list[str]:
    match part:
        case Text():
            return [sentence(part.text, 4000)]
        case Items():
            leads = [f"{i}. **{sentence(lead)}**" for i, lead in enumerate(part.leads, 1)]
            firsts = leads or ["- "] * len(part.rows)
            return [a + sentence(b, 1000) for a, b in zip(firsts, part.rows, strict=True)]
        case Code():
            # Indented: no name can end the block.
            return [f"    {line}".rstrip() for line in part.lines]
        case Chart():
            return []
    table = pipe_table(part)
    return [f"{sentence(part.title)}:", "", *table] if part.title and table else table


def pipe_table(table: Table) -> list[str]:
    """Return a table as lines.

    Names are code: cells of the first column if it is aligned left and has a header, and cells
    without a space in other columns aligned left.
    """

    def cell(i: int, text: str) -> str:
        is_name = i in table.left and (i == 0 or (text and " " not in text))
        return code(text) if is_name and table.headers[0] else _escaped(text)

    rule = ["---" if i in table.left else "---:" for i in range(len(table.headers))]
    rows = ([cell(i, text) for i, text in enumerate(row)] for row in table.rows)
    cells = [map(_escaped, table.headers), rule, *rows]
    return [f"| {' | '.join(row)} |" for row in cells] if table.rows else []


def code(name: str) -> str:
    """Return a name as a code span that its content cannot end."""
    text = readable(readable(name, 1000), _NAME).replace("`", "\\x60").replace("|", "\\x7c")
    return f"`{text}`" if text.strip() else "`(unnamed)`"


def sentence(text: str, limit: int = _SENTENCE) -> str:
    """Return a sentence of fastprof's, which may contain names, as text without markup."""
    text = _escaped(shortened(text, limit))
    return re.sub(r"^(?=[-+=]|\d+[.)] )", "&#8203;", text)  # would begin a list or be a rule


def _escaped(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_{}\[\]~|#$])", r"\\\1", text)
    # Neither links nor mentions.
    return text.replace("://", ":\\//").replace("www.", "www\\.").replace("@", "&#8203;@")
