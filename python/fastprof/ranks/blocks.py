"""Turns the blocks of steps that a rank has published into a rank to judge."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from fastprof.ranks.live.window import COLUMNS, MEASURED, RankWindow, Row, joined
from fastprof.ranks.model import RankRow
from fastprof.ranks.row import Between, RankRun, RankSteps
from fastprof.report.phase_names import BACKWARD, is_communication

#: A window has this many seconds of steps, and at least this many blocks.
WINDOW_S = 10.0
MIN_BLOCKS = 8
#: Number of blocks kept per rank.
_KEPT = 160


@dataclass(slots=True)
class HeardRank:
    """The state of a rank: its last window, the time of its arrival, and its blocks.

    ``lives``: a second window came, so the first was not from an earlier start.
    """

    window: RankWindow
    heard: float
    moved: float
    lives: bool = False
    said: bool = False
    size: int = 1
    names: tuple[str, ...] = ()
    blocks: dict[int, dict[str, int]] = field(default_factory=dict)


def add_blocks(rank: HeardRank, window: RankWindow) -> None:
    names: tuple[str, ...] = (*window.columns, *(f"section {name}" for name in window.sections))
    if window.size != rank.size:
        known = {start: tuple(row.values()) for start, row in rank.blocks.items()}
        alike = all(tuple(row) == rank.names for row in rank.blocks.values())
        if window.size > rank.size and alike:
            kept = joined(known, rank.size, window.size)
            rank.blocks = {s: dict(zip(rank.names, row, strict=True)) for s, row in kept.items()}
        else:
            rank.blocks = {}
        rank.size = window.size
    there = rank.blocks if names == rank.names else {}
    rank.names = names
    for start, row in window.blocks.items():
        if start not in there:  # a complete block never changes
            rank.blocks[start] = dict(zip(names, row, strict=True))
    for start in sorted(rank.blocks)[:-_KEPT]:
        del rank.blocks[start]


def end_of(rank: HeardRank) -> int:
    """Return the step after the last block; -1: the rank has no block."""
    return max(rank.blocks) + rank.size if rank.blocks else -1


def window_starts(rank: HeardRank, size: int, end: int, seconds: float | None = None) -> list[int]:
    """Return the blocks of the last window before step ``end``, oldest first.

    Args:
        size: steps per block.
        end: later blocks are left out.
        seconds: length of the window; None: of a usual one.
    """
    seconds = WINDOW_S if seconds is None else seconds
    found: list[int] = []
    took = 0.0
    for start in sorted(rank.blocks, reverse=True):
        if start + rank.size > end:
            continue
        at = start - start % size
        took += rank.blocks[start]["wall"] * rank.size / 1e6
        if (not found or found[-1] != at) and at + size <= end:
            found.append(at)
        if took >= seconds and len(found) >= MIN_BLOCKS:
            break
    return found[::-1]


def run_in_blocks(rank: HeardRank, size: int, starts: Sequence[int]) -> RankRun | None:
    """Return the rank in the form to judge, each block as a step."""
    names = tuple(rank.blocks[max(rank.blocks)])
    known: dict[int, Row] = {}
    for start in starts if rank.size == size else rank.blocks:
        block = rank.blocks.get(start)
        if block is not None and block.keys() >= set(names):
            known[start] = tuple(map(block.__getitem__, names))
    blocks = joined(known, rank.size, size)
    numbers = [start for start in starts if start in blocks]
    if len(numbers) < MIN_BLOCKS:
        return None
    columns = {
        name: array("f", [us / 1000 for us in values])
        for name, values in zip(names, zip(*(blocks[n] for n in numbers), strict=True), strict=True)
    }
    window = rank.window
    known_columns = {name: columns.get(name) for name in COLUMNS}
    sections = {name[8:]: of for name, of in columns.items() if name.startswith("section ")}
    wall = columns["wall"]
    steps = RankSteps(
        numbers=array("q", numbers),
        wall=wall,
        sections=sections,
        communication=known_columns["communication"],
        autograd=known_columns["autograd"],
        cpu=known_columns["cpu"],
        gc=None,
        cpu_wait=known_columns["cpu_wait"],
        gpu_wait=known_columns["gpu_wait"],
        measured=columns.get(MEASURED),
    )
    waits = {}
    if steps.gpu_wait is not None:
        waits["gpu"] = fmean(steps.gpu_wait)
    if any(steps.communication or ()):
        waits["split"] = fmean(steps.communication or ())
    told = [fmean(of) for name, of in sections.items() if is_communication(name)]
    if told:
        waits["sections"] = sum(told)
    backward = [fmean(of) for name, of in sections.items() if name in BACKWARD]
    if backward:
        waits["backward"] = sum(backward)
    row = RankRow(
        rank=window.rank, world_size=window.world_size, host=window.host or None, path="",
        steps=len(numbers), skipped=0, step_ms=fmean(wall), p95_ms=None, cv=None,
        sections=tuple((name, fmean(of)) for name, of in sections.items()),
        waits=tuple(waits.items()), gpu_utilization=None,
        gpu_compute_ms=window.gpu_compute / 1000 if window.gpu_compute else None,
        gpu_communication_ms=None, gpu_waits=None, memory_bytes=None, memory_total_bytes=None,
        setup=(),
    )  # fmt: skip
    between = {name: Between(us / 1000 * len(numbers)) for name, us in window.between.items()}
    waiting = {name: us / 1000 for name, us in window.waiting.items()}
    return RankRun(row, steps, waiting, between=between, cuda=window.cuda)
