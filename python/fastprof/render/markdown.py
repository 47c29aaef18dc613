"""A summary in Markdown, sized for a ticket or a chat: 60 lines and 4 kB at most.

Names are code spans, in which nothing is markup, a link or a mention; a backtick or a
pipe in one is written ``\\x60`` or ``\\x7c``.  Sentences have what Markdown and HTML would
take for markup escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TextIO

from fastprof._version import __version__
from fastprof.names import ascii_name
from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.report.targets import target_of
from fastprof.tables.cells import duration, number, percent, shortened
from fastprof.tables.overview import known_figures
from fastprof.tables.report import calls, place
from fastprof.tables.steps import kind_name

MAX_LINES = 60
MAX_BYTES = 4096

#: Longest name and sentence.
_NAME = 48
_SENTENCE = 240

#: Rows of each list; the next smaller number where the whole would be too long.
_ROWS = (8, 6, 4, 3, 2, 1)


def write(report: Report, stream: TextIO) -> None:
    """Write the summary."""
    stream.write(summary(report))


def summary(report: Report) -> str:
    """Return the summary, within :data:`MAX_LINES` and :data:`MAX_BYTES`."""
    for rows in _ROWS:
        lines = _page(report, rows)
        if _fits(lines):
            break
    while not _fits(lines):  # names that are markup all over
        del lines[-1]
    return "\n".join(lines) + "\n"


def _fits(lines: Sequence[str]) -> bool:
    return len(lines) <= MAX_LINES and sum(len(line) + 1 for line in lines) <= MAX_BYTES


def _page(report: Report, rows: int) -> list[str]:
    lines = [f"### fastprof: {_headline(report)}", ""]
    lines += pipe_table(("", ""), [(f.name, sentence(f.value)) for f in known_figures(report)])
    for part in (_steps(report, rows), _split(report), _functions(report, rows)):
        lines += ["", *part] if part else []
    lines += _findings(report, min(rows, 5))
    lines += _notes(report, min(rows, 4))
    return [*lines, "", sentence(_origin(report), 400)]


def _headline(report: Report) -> str:
    if report.steps.mean_ms is not None:
        return f"{number(report.steps.mean_ms)} ms per step"
    return f"{duration(report.wall_ms)} recorded"


def _steps(report: Report, limit: int) -> list[str]:
    """Where a step goes; in the table's own order unless rows have to be left out."""
    rows: Sequence[tuple[str, float | None, float | None]]
    if report.steps.wall_ns is not None:
        titles = ("section", "ms per step", "share %", "target %")
        rows = [(r.name, r.mean_ms, r.share) for r in report.steps.rows]
    else:
        titles = ("section", "total ms", "share %", "target %")
        rows = [(r.name, r.total_ms, r.share) for r in report.sections]
    largest = sorted(rows, key=lambda r: -(r[1] or 0.0))[:limit]
    cells = []
    for name, ms, share in (row for row in rows if row in largest):
        target = target_of(name)
        cells.append(
            (code(name), number(ms), percent(share), sentence(target.text) if target else "")
        )
    return pipe_table(titles, cells[:limit])


def _split(report: Report) -> list[str]:
    parts = [
        f"{kind_name(row.name)} {number(row.mean_ms)} ms ({percent(row.share)} %)"
        for row in sorted(report.steps.split, key=lambda r: -r.total_ns)
        if row.total_ns
    ]
    return [f"Each step's time: {sentence(', '.join(parts), 400)}."] if parts else []


def _functions(report: Report, limit: int) -> list[str]:
    cells = [
        (code(r.qualname or r.name), number(r.self_ms), percent(r.share), calls(r), code(place(r)))
        for r in report.functions[:limit]
    ]
    return pipe_table(("function", "self ms", "share %", "calls", "defined at"), cells)


def _findings(report: Report, limit: int) -> list[str]:
    lines = []
    for i, finding in enumerate(report.findings[:limit], 1):
        text = f"{i}. **{sentence(finding.title)}**"
        if finding.saving_ms is not None:
            text += f", estimated saving {number(finding.saving_ms)} ms per step"
        said = [*finding.evidence[:1], *finding.fix[:1]]
        lines.append(". ".join([text.rstrip("."), *(sentence(s).rstrip(".") for s in said)]) + ".")
    return ["", "Findings:", "", *lines] if lines else []


def _notes(report: Report, limit: int) -> list[str]:
    lines = [f"- {sentence(note)}" for note in report.notes[:limit]]
    left = len(report.notes) - len(lines)
    if left > 0:
        lines.append(f"- and {plural(left, 'more note')} in the report")
    return ["", "Notes:", "", *lines] if lines else []


def _origin(report: Report) -> str:
    meta = report.meta
    parts = [f"fastprof {__version__}"]
    for key, label in (("python", "Python"), ("backend", "backend"), ("rank", "rank")):
        if meta.get(key) is not None:
            parts.append(f"{label} {ascii_name(str(meta[key]), 30)}")
    return f"{', '.join(parts)}. {report.overhead.text}"


def pipe_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines; its cells are Markdown already."""
    if not rows:
        return []
    rule = ["---", *("---:" for _ in titles[1:])] if titles[0] else ["---"] * len(titles)
    return [f"| {' | '.join(cells)} |" for cells in (titles, rule, *rows)]


def code(name: str) -> str:
    """Return a name as a code span that nothing in it can end."""
    text = ascii_name(ascii_name(name, 1000), _NAME).replace("`", "\\x60").replace("|", "\\x7c")
    return f"`{text}`" if text.strip() else "`(unnamed)`"


def sentence(text: str, limit: int = _SENTENCE) -> str:
    """Return text of ours, which may have names in it, as text without markup."""
    text = shortened(text, limit)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_{}\[\]~|#$])", r"\\\1", text)
    text = re.sub(r"^(?=[-+=]|\d+[.)] )", "&#8203;", text)  # would begin a list or be a line
    # No links and no mentions either.
    return text.replace("://", ":\\//").replace("www.", "www\\.").replace("@", "&#8203;@")
