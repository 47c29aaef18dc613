"""A running process, and a list of them, on a screen."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fastprof.names import file_name, readable
from fastprof.report.figures import duration, number, percent, plural, size
from fastprof.session.outside.places import RUN, Process
from fastprof.session.outside.status import Now
from fastprof.tables.cells import Table, short
from fastprof.tables.layout import table_lines, wrapped

_BARS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=+*#@"
_MOST_BARS = 48
_SECTIONS = 6
_LONGEST_PLACE = 100
#: Phases of a run to name; the others are steps.
_PHASES = ("setup", "validation", "checkpoint", "outside")


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as its watcher sees it.

    ``for_s`` is its age in seconds, ``host_bytes`` the memory that it has, both None if unknown;
    ``now`` is its last status, None if there is none.
    """

    process: Process
    for_s: float | None
    host_bytes: int | None
    now: Now | None


def process_lines(seen: Seen, width: int, *, ascii_only: bool) -> list[str]:
    """Return one process as lines of at most ``width`` columns.

    Args:
        ascii_only: draw the step times with characters that each terminal has.
    """
    now = seen.now
    lines = wrapped(f"{_heading(seen)}{_steps(now)}", width, "", "  ")
    if now is None:
        return lines
    if now.block_ms:
        lines += ["", *_step_times(now, width, ascii_only)]
        step_ms = fmean(now.block_ms)
        lines += ["", *_share_table(width, "where a step goes", _sections(now, step_ms), step_ms)]
        if now.functions is not None:
            cells = tuple(
                (f"{short(name)}  {readable(file_name(file), 40)}:{line}", percent(share))
                for name, file, line, share in now.functions
            )
            title = "your functions"
            lines += ["", *_without_rule(Table("", (title, "%"), cells), width)]
    lines += ["", *(line for text in _rest(seen, now) for line in wrapped(text, width, "", "  "))]
    said = [line for text in now.said for line in wrapped(readable(text, 400), width, "- ")]
    return [*lines, *(["", "Reported so far:", *said] if said else [])]


def _heading(seen: Seen) -> str:
    process = seen.process
    rank = f", rank {process.rank} of {process.world_size}" if process.world_size > 1 else ""
    age = "" if seen.for_s is None else f", runs for {duration(1000 * seen.for_s)}"
    return f"{readable(process.program, 60)} (process {process.pid}{rank}{age}): "


def _steps(now: Now | None) -> str:
    if now is None:
        return "no answer yet"
    if not now.steps:
        return "no step yet"
    if not now.block_ms:
        return plural(now.steps, "step")
    mean = duration(fmean(now.block_ms))
    return f"{plural(now.steps, 'step')}, {mean} each in the last 10 s"


def _step_times(now: Now, width: int, ascii_only: bool) -> list[str]:
    low, high = min(now.block_ms), max(now.block_ms)
    shown = now.block_ms[-min(_MOST_BARS, width - 12) :]
    bars = sparkline(shown, _ASCII if ascii_only else _BARS)
    per = "" if now.block_steps == 1 else f", means of {plural(now.block_steps, 'step')}"
    span = wrapped(f"{number(low)} to {duration(high)}{per}", width, " " * 11)
    return [f"step time  {bars}", *span]


def sparkline(values: Sequence[float], levels: str) -> str:
    """Return a character per value: its height between 0 and the largest value."""
    most = max(values, default=0.0)
    if most <= 0.0:
        return levels[0] * len(values)
    return "".join(levels[min(len(levels) - 1, int(len(levels) * v / most))] for v in values)


def _sections(now: Now, step_ms: float) -> list[tuple[str, float]]:
    found = [(short(name), ms) for name, ms in now.sections if ms > 0][:_SECTIONS]
    rest = step_ms - sum(ms for _, ms in found)
    # Sections of a section are in its time, too.
    return [*found, ("(in none of these)", rest)] if rest > 0 else found


def _share_table(
    width: int, title: str, rows: Sequence[tuple[str, float]], step_ms: float
) -> list[str]:
    cells = tuple(
        (name, number(ms), percent(ms / step_ms if step_ms else None)) for name, ms in rows
    )
    return _without_rule(Table("", (title, "ms", "%"), cells), width)


def _without_rule(table: Table, width: int) -> list[str]:
    drawn = table_lines(table, width)
    return [drawn[0], *drawn[2:]]


def _rest(seen: Seen, now: Now) -> list[str]:
    where = readable(now.place, _LONGEST_PLACE)
    phase = f" ({now.phase})" if now.phase in _PHASES else ""
    lines = [f"Now in {where}{phase}."] if where else []
    if seen.host_bytes is not None:
        memory = f"Memory: {size(seen.host_bytes)} of the host"
        if now.gpu is not None:
            allocated, reserved = now.gpu
            memory += f"; GPU: {size(allocated)} allocated, {size(reserved)} reserved by torch"
        lines.append(f"{memory}.")
    return lines


def list_lines(found: Sequence[Seen], width: int) -> list[str]:
    """Return a list of processes as lines of at most ``width`` columns."""
    rows: list[tuple[str, ...]] = []
    for seen in found:
        now = seen.now
        step_ms = fmean(now.block_ms) if now is not None and now.block_ms else None
        without = "in standby" if seen.process.mode != RUN else "no answer"
        place = without if now is None else readable(now.place, _LONGEST_PLACE)
        rows.append(
            (
                str(seen.process.pid),
                readable(seen.process.program, 40),
                "n/a" if seen.for_s is None else duration(1000 * seen.for_s),
                str(seen.process.rank) if seen.process.world_size > 1 else "",
                "n/a" if now is None else str(now.steps),
                number(step_ms),
                place,
            )
        )
    headers: tuple[str, ...] = (
        "process",
        "program",
        "runs for",
        "rank",
        "steps",
        "ms/step",
        "now in",
    )
    if not any(row[3] for row in rows):
        headers = (*headers[:3], *headers[4:])
        rows = [(*row[:3], *row[4:]) for row in rows]
    left = frozenset({0, 1, len(headers) - 1})
    return table_lines(Table("", headers, tuple(rows), left, ("runs for",)), width)
