"""The ranks of a job in a few lines: the verdict, a row per late rank, one for the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TextIO

from fastprof.names import readable
from fastprof.ranks.live.now import NO_HEARTBEAT, JobNow, RankNow
from fastprof.ranks.model import RankReport, RankRow
from fastprof.report.figures import plural
from fastprof.report.rows import UNACCOUNTED
from fastprof.tables.cells import Table, number, short
from fastprof.tables.layout import table_lines, width_of, without_unknown, wrapped

#: Most late ranks with a row; in a job of at most _FEW ranks the others have one each.
_LATE = 6
_FEW = 4
_SECTIONS = 5
_STATES = 4
#: Time outside of sections is shown from this part of a step on.
_MUCH = 0.2
_NOT_KNOWN = "It is not known whether a rank is late"
_UNKNOWN = "Who is late is not known: "
#: Live messages of ranks describe their last window.
_LIVE = "in the last 10 s"
_UNIT = "ms per step"


@dataclass(frozen=True, slots=True)
class _Row:
    """The row of a rank, ms per step."""

    rank: int
    host: str | None
    step_ms: float | None
    work_ms: float | None
    sections: dict[str, float]


def brief_lines(report: RankReport, width: int) -> list[str]:
    """Return the comparison of saved runs in lines of at most ``width`` columns."""
    works: Sequence[float | None] = report.work_ms or [None] * len(report.rows)
    parts = _parts(report.rows)
    rows = [
        _Row(row.rank, row.host, row.step_ms, work, of)
        for row, work, of in zip(report.rows, works, parts, strict=True)
    ]
    late = [] if report.straggler is None else [report.straggler.rank, *report.straggler.also]
    late += [p.rank for p in report.periods]
    once = [hang.rank for hang in report.hangs]
    head = _head(len(rows), report.world_size)
    return [*wrapped(f"{head} {_verdict(report)}", width), *_table(rows, late, once, width)]


def _verdict(report: RankReport) -> str:
    """Return the verdict; if nothing is known, with the reason, which is the first note."""
    why = next((note for note in report.notes if note.startswith(_UNKNOWN)), "")
    reason = why.removeprefix(_UNKNOWN).partition(". ")[0].rstrip(".")
    known = report.straggler is not None or report.seen_from_ms is not None
    if known or not reason:
        return report.verdict
    head, found, rest = report.verdict.partition(_NOT_KNOWN)
    where, _, rest = rest.partition(".")
    return f"{head}{found}{where}: {reason}.{rest}"


def show_ranks(job: JobNow | None, stream: TextIO) -> None:
    """Write the last state of all ranks to ``stream``, if there are several."""
    if job is not None and job.known > 1:
        lines = brief_lines_live(job, width_of(stream))
        stream.writelines(f"{line}\n" for line in ("", *lines))


def brief_lines_live(job: JobNow, width: int) -> list[str]:
    """Return the ranks' latest live messages in lines of at most ``width`` columns."""
    rows = [
        _Row(row.rank, row.host, row.step_ms, row.work_ms, dict(row.sections)) for row in job.rows
    ]
    late = [] if job.late is None else [job.late.rank, *job.late.also]
    head = f"{_head(job.known, job.world_size)[:-1]}, {_LIVE} of steps."
    lines = wrapped(f"{head} {job.verdict}", width)
    table = _table(rows, late, (), width, live_heading(job))
    return [*lines, *table, *state_lines(job, width)]


def live_heading(job: JobNow) -> str:
    """Return the heading of a table of the last window: the unit, and what own work leaves out."""
    left_out = "; own work without waits for a CPU" if job.own_without_waits else ""
    return f"{_UNIT}, {_LIVE} of steps{left_out}:"


def state_lines(job: JobNow, width: int) -> list[str]:
    """Return lines on ranks without a heartbeat, and those that are stalled or wait."""
    states = [f"Rank {row.rank}: {row.state}" for row in job.rows if is_told(row)]
    told = [line for text in states[:_STATES] for line in wrapped(text, width, rest="  ")]
    if len(states) > _STATES:
        told.append(f"And {plural(len(states) - _STATES, 'more rank')}.")
    return told


def is_told(row: RankNow) -> bool:
    """Return whether a rank has no heartbeat, is stalled or waits."""
    return row.state.startswith((NO_HEARTBEAT, "stands", "waits"))


def _parts(rows: Sequence[RankRow]) -> list[dict[str, float]]:
    """Return the sections of saved runs' steps; the time outside of them if a rank has much."""
    parts = [dict(row.sections) for row in rows]
    rest = [(row.step_ms or 0.0) - sum(of.values()) for row, of in zip(rows, parts, strict=True)]
    much = any(
        row.step_ms and of and ms >= _MUCH * row.step_ms
        for row, of, ms in zip(rows, parts, rest, strict=True)
    )
    for row, of, ms in zip(rows, parts, rest, strict=True):
        if much and row.step_ms:
            of[UNACCOUNTED] = max(0.0, ms)
    return parts


def _head(known: int, world_size: int | None) -> str:
    return f"Ranks: {known}." if world_size is None else f"Ranks: {known} of {world_size}."


def _table(
    rows: Sequence[_Row],
    late: Sequence[int],
    once: Sequence[int],
    width: int,
    heading: str = f"{_UNIT}:",
) -> list[str]:
    """Return the table; ``late`` ranks come first, then those of ``once``: of single steps."""
    named = dict.fromkeys([*late, *once])
    if not named and not 2 <= len(rows) <= _FEW:
        return []
    by_rank = {row.rank: row for row in rows}
    shown = [by_rank[rank] for rank in named if rank in by_rank][:_LATE]
    others = [row for row in rows if row not in shown]
    totals = {name: sum(row.sections.get(name, 0.0) for row in rows)
              for name in dict.fromkeys(name for row in rows for name in row.sections)}  # fmt: skip
    names = sorted(totals, key=lambda name: -totals[name])[:_SECTIONS]
    cells = [_cells(f"{row.rank} ({_how(row.rank, late, once)})", [row], names) for row in shown]
    if len(rows) <= _FEW:
        cells += [_cells(str(row.rank), [row], names) for row in others]
    elif others:
        cells.append(_cells(f"median of {len(others)}", others, names))
    headers = ("rank", "host", "step", "own work", *map(short, names))
    table = Table("", headers, tuple(cells), frozenset({0, 1}), tuple(map(short, names[::-1])))
    if len({row.host for row in rows}) < 2:
        kept = [0, *range(2, len(headers))]
        table = Table(
            "", tuple(headers[i] for i in kept), tuple(tuple(c[i] for i in kept) for c in cells),
            frozenset({0}), table.spare,
        )  # fmt: skip
    drawn = table_lines(without_unknown(table), width)
    return ["", heading, drawn[0], *drawn[2:]]


def _how(rank: int, late: Sequence[int], once: Sequence[int]) -> str:
    if rank in late:
        return "late"
    return "late once" if once.count(rank) == 1 else "late at times"


def _cells(name: str, rows: Sequence[_Row], sections: Sequence[str]) -> tuple[str, ...]:
    host = rows[0].host if len(rows) == 1 else ""
    return (
        name,
        "n/a" if host is None else readable(host, 24),
        _median([row.step_ms for row in rows]),
        _median([row.work_ms for row in rows]),
        *(_median([row.sections.get(name) for row in rows]) for name in sections),
    )


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return number(median(known) if known else None)
