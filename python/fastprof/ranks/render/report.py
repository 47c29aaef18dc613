"""The ranks of a job as text, JSON, Markdown and a page."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TextIO

from fastprof.findings.rules.ranks import rank_finding
from fastprof.ranks.model import SIGNALS, RankReport, RankRow
from fastprof.ranks.render.heat import heat_blocks
from fastprof.render.html import blocks_page
from fastprof.render.markdown import markdown
from fastprof.render.plain import plain
from fastprof.report.phase_names import BACKWARD, DATA, FORWARD, OPTIMIZER
from fastprof.report.writers import plain_values
from fastprof.tables.blocks import Block, Items, Part, Text
from fastprof.tables.cells import Table, number, percent, short, shortened, with_percent
from fastprof.tables.layout import without_unknown

SCHEMA = "fastprof.ranks/1"

#: Rows of the tables in text and in Markdown; JSON has all.
TEXT_RANKS = 64
MARKDOWN_RANKS = 16
_FUNCTIONS = 15

_GIB = 1 << 30


def write_text(report: RankReport, stream: TextIO, width: int | None = None) -> None:
    """Write plain text."""
    made = [
        Block(_headline(report)),
        Block("", _said(report)),
        *(Block("", (table,)) for table in _tables(report)),
        *_notes("Notes:", report.notes),
    ]
    stream.writelines(f"{line}\n" for line in plain(made, width))


def write_html(report: RankReport, stream: TextIO) -> None:
    """Write a page, with a picture of the ranks' lateness over the steps."""
    made = [
        Block(_headline(report), _said(report)),
        *heat_blocks(report),
        *(Block(table.title, (replace(table, title=""),)) for table in _tables(report)),
        *_notes("Notes", report.notes),
    ]
    stream.write(blocks_page(made))


def write_markdown(report: RankReport, stream: TextIO) -> None:
    """Write a summary for a ticket."""
    notes = Items(tuple(shortened(note, 400) for note in report.notes))
    parts: tuple[Part, ...] = (
        *_said(report),
        *(table for table in (_ranks(report, MARKDOWN_RANKS), _sections(report)) if table.rows),
        notes,
    )
    made = [Block(_headline(report), parts)]
    stream.writelines(f"{line}\n" for line in markdown(made, 3))


def write_json(report: RankReport, stream: TextIO) -> None:
    """Write JSON with the fields and the finding of a ``RankReport``."""
    fields = asdict(report)
    if report.straggler is not None:
        fields["straggler"] |= {"wait_ms": report.straggler.wait_ms, "text": report.straggler.text}
    fields["verdict"] = report.verdict
    finding = rank_finding(report)
    fields["finding"] = None if finding is None else asdict(finding)
    json.dump(plain_values({"schema": SCHEMA, **fields}), stream, allow_nan=False, indent=1)
    stream.write("\n")


def _headline(report: RankReport) -> str:
    of = "" if report.world_size is None else f" of {report.world_size}"
    hosts = {row.host for row in report.rows if row.host is not None}
    return f"fastprof ranks: {len(report.rows)}{of}" + (
        f" on {len(hosts)} hosts" if len(hosts) > 1 else ""
    )


def _tables(report: RankReport) -> list[Table]:
    made = (_ranks(report, TEXT_RANKS), _sections(report), _functions(report))
    return [table for table in made if table.rows]


def _notes(title: str, notes: tuple[str, ...]) -> list[Block]:
    return [Block(title, (Items(notes),))] if notes else []


def _said(report: RankReport) -> tuple[Text, ...]:
    """Return the verdict and the finding."""
    text = report.verdict
    if report.imbalance is not None:
        text += (
            f" Imbalance of own work: the busiest rank takes {with_percent(report.imbalance)} "
            f"longer than the mean. {SIGNALS[report.signal]}."
        )
    finding = rank_finding(report)
    if finding is None:
        return (Text(text),)
    line = f"Finding ({finding.severity}): {finding.title} ({finding.threshold})."
    return Text(text), Text(line), Text(f"Fix: {' '.join(finding.fix)}")


def _ranks(report: RankReport, limit: int) -> Table:
    works: Sequence[float | None] = report.work_ms or [None] * len(report.rows)
    rows = list(zip(report.rows, works, strict=True))
    title = "Ranks (ms per step)"
    if len(rows) > limit:
        # Keep the ranks with most own work.
        rows = sorted(rows, key=lambda pair: -(pair[1] or pair[0].step_ms or 0.0))[:limit]
        title = f"Ranks (ms per step; {limit} of {len(report.rows)}, most own work first)"
    headers: tuple[str, ...] = (
        "rank", "host", "steps", "step", "p95", "own work", "data", "forward", "backward",
        "optimizer", "communication", "GPU busy %", "GPU compute", "GPU waits per step",
        "memory GiB",
    )  # fmt: skip
    cells = [_rank(row, work) for row, work in rows]
    # Without the driver's figures these columns would be empty.
    for header, of in _HEALTH if any(_told(row) for row in report.rows) else ():
        headers += (header,)
        cells = [(*cell, of(row)) for cell, (row, _) in zip(cells, rows, strict=True)]
    return without_unknown(Table(title, headers, tuple(cells), frozenset({1})))


#: For the hottest, slowest, most throttled GPU of a rank.
_HEALTH: tuple[tuple[str, Callable[[RankRow], str]], ...] = (
    ("GPU mean C", lambda row: number(row.gpu_temperature_c, 0)),
    ("GPU most C", lambda row: number(row.gpu_temperature_max_c, 0)),
    ("SM clock MHz", lambda row: number(row.gpu_sm_clock_mhz, 0)),
    ("throttled %", lambda row: percent(row.gpu_throttled)),
)


def _told(row: RankRow) -> bool:
    figures = (row.gpu_temperature_c, row.gpu_sm_clock_mhz, row.gpu_throttled)
    return any(figure is not None for figure in figures)


def _rank(row: RankRow, work: float | None) -> tuple[str, ...]:
    memory = None if row.memory_bytes is None else row.memory_bytes / _GIB
    return (
        str(row.rank), "n/a" if row.host is None else short(row.host), str(row.steps),
        number(row.step_ms), number(row.p95_ms), number(work),
        number(row.section_ms(*DATA)),
        number(row.section_ms(*FORWARD)),
        number(row.section_ms(*BACKWARD)),
        number(row.section_ms(*OPTIMIZER)),
        number(row.communication_ms), percent(row.gpu_utilization), number(row.gpu_compute_ms),
        number(row.gpu_waits), number(memory),
    )  # fmt: skip


def _sections(report: RankReport) -> Table:
    rows = tuple(
        (short(s.name), str(s.ranks), number(s.mean_ms), number(s.min_ms), str(s.min_rank),
         number(s.max_ms), str(s.max_rank))
        for s in report.sections
    )  # fmt: skip
    headers = ("section", "ranks", "mean", "least", "on rank", "most", "on rank")
    return Table("Sections over the ranks (ms per step)", headers, rows)


def _functions(report: RankReport) -> Table:
    shown = report.functions[:_FUNCTIONS]
    rows = tuple(
        (short(f.qualname), str(f.ranks), str(f.calls), number(f.self_ms), number(f.cum_ms),
         number(f.max_self_ms), str(f.max_rank))
        for f in shown
    )  # fmt: skip
    headers = ("function", "ranks", "calls", "self ms", "cum ms", "most self ms", "on rank")
    title = f"Functions of all ranks, most self time first ({len(shown)} of "
    return Table(f"{title}{len(report.functions)})", headers, rows)
