"""The ranks of a running job on a screen."""

from collections.abc import Sequence

from fastprof.names import readable
from fastprof.ranks.live.now import JobNow, RankNow
from fastprof.ranks.render.brief import is_told, live_heading, state_lines
from fastprof.report.figures import plural
from fastprof.tables.cells import Table, number, short
from fastprof.tables.layout import table_lines, without_unknown, wrapped

_SECTIONS = 4


def watch_lines(job: JobNow, messages: Sequence[str], width: int, height: int) -> list[str]:
    """Return the ranks as at most about ``height`` lines of at most ``width`` columns.

    Args:
        messages: rank 0's latest ones.
        height: lines; late ranks and ranks with a message come first.
    """
    steps = max((row.steps for row in job.rows), default=0)
    head = f"Ranks: {len(job.rows)} of {job.world_size}, step {steps}. {job.verdict}"
    lines = wrapped(head, width)
    told = state_lines(job, width)
    log = [line for text in messages for line in wrapped(text, width, "- ")]
    room = max(4, height - len(lines) - len(told) - len(log) - 6)
    lines += ["", *_table(job, room, width)]
    lines += [*([""] if told else []), *told]
    return [*lines, *(["", "Reported so far:", *log] if log else [])]


def _table(job: JobNow, room: int, width: int) -> list[str]:
    rows = sorted(job.rows, key=lambda row: (not is_told(row), -(row.late_ms or 0.0), row.rank))
    shown = rows if len(rows) <= room else rows[:room]
    if len(shown) == len(rows):
        shown = sorted(rows, key=lambda row: row.rank)
    totals: dict[str, float] = {}
    for row in job.rows:
        for name, ms in row.sections:
            totals[name] = totals.get(name, 0.0) + ms
    names = sorted(totals, key=lambda name: -totals[name])[:_SECTIONS]
    headers = ("rank", "host", "steps", "step", "own work", "late by", *map(short, names), "state")
    cells = tuple(_cells(row, names) for row in shown)
    spare = ("host", *map(short, names[::-1]))
    left = frozenset({1, len(headers) - 1})
    drawn = table_lines(without_unknown(Table("", headers, cells, left, spare)), width)
    lines = [live_heading(job), drawn[0], *drawn[2:]]
    more = len(rows) - len(shown)
    return [*lines, f"Not shown: {plural(more, 'rank')}, less late than these."] if more else lines


def _cells(row: RankNow, names: Sequence[str]) -> tuple[str, ...]:
    sections = dict(row.sections)
    state = row.state.partition(" ")[0] if is_told(row) else row.state
    return (
        str(row.rank),
        "n/a" if row.host is None else readable(row.host, 24),
        str(row.steps),
        number(row.step_ms),
        number(row.work_ms),
        number(None if row.late_ms is None else max(0.0, row.late_ms)),
        *(number(sections.get(name)) for name in names),
        state,
    )
