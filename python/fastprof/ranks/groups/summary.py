"""Small, mergeable summaries of the last windows of many ranks, for large jobs.

A leader makes a group of the windows of some ranks, others merge such groups, and rank 0 judges
the result.  A group has histograms of own work per block of steps, and the windows of the few
ranks with the most own work.  :func:`merge` is associative and commutative, so groups can be
merged along any tree.  As with windows, the result of :func:`decode_group` is consistent,
wherever the bytes come from.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from statistics import fmean
from typing import Any

from fastprof.ranks.blocks import HeardRank, end_of, run_in_blocks, window_starts
from fastprof.ranks.cause import own_ms, sections_of
from fastprof.ranks.judge import Series
from fastprof.ranks.live.window import RankWindow, encode, is_unclear, is_waiting
from fastprof.ranks.live.wire import MAX_NAME, MAX_NUMBER
from fastprof.ranks.row import BETWEEN
from fastprof.ranks.verdict import ENGINE, waiting_signals

#: Each bucket is wider than the last by this factor: its middle is within 1 % of its values.
_WIDTH = 1.01
_LOG_WIDTH = math.log(_WIDTH)
MAX_BUCKET = 2500
MAX_BLOCKS = 48
#: Number of kept windows of ranks with the most own work; of named ranks that are stalled or lost.
MOST = 6
#: Number of kept windows of ranks with the most CPU time, and the most time between steps.
MOST_OTHER = 2
CPU, BETWEEN_STEPS = "cpu", "between"
MAX_SECTIONS = 12

#: Number of values by bucket.
Histogram = Mapping[int, int]
#: Steps of a block, and the number of its first step.
Block = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RankHeard:
    """A rank that is stalled or without a heartbeat: its last known place, ``seconds`` ago."""

    rank: int
    host: str
    place: str
    steps: int
    seconds: int


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The last windows of some ranks of a job.

    ``heard`` is the number of ranks; ``ended`` of them have ended.  ``blocks`` are own work by
    block of steps, ``works`` its mean over the window, ``walls`` the time of a step, ``sections``
    own work by section; all per step, one value per rank, by the signal that defines waiting.
    ``most`` are the windows of the ranks with the most own work, by rank, with that work in us.
    ``others`` are the same for the CPU time of the training thread and the time between steps.
    ``blocks`` and ``works`` have CPU times, too, for :data:`CPU`.  ``cpu_waits`` is the time that
    ranks wait for a CPU, by signal; ``between`` their times between steps, by phase, of the ranks
    that have such times.

    ``active`` ranks train.  ``quiet`` of these have ended no step for long; ``waiting`` of the
    quiet ones wait for others, and ``standing`` lists some of the rest.  ``silent`` ranks have
    sent no heartbeat for long; ``lost`` lists some.  Of ``unclear`` quiet ranks it is not known
    whether their GPUs wait.  For ``still_s`` no rank has ended a step.
    """

    job: str
    world_size: int
    heard: int = 0
    ended: int = 0
    blocks: Mapping[str, Mapping[Block, Histogram]] = field(default_factory=dict)
    works: Mapping[str, Histogram] = field(default_factory=dict)
    walls: Mapping[str, Histogram] = field(default_factory=dict)
    sections: Mapping[str, Mapping[str, Histogram]] = field(default_factory=dict)
    most: Mapping[int, tuple[int, bytes]] = field(default_factory=dict)
    active: int = 0
    quiet: int = 0
    waiting: int = 0
    silent: int = 0
    standing: tuple[RankHeard, ...] = ()
    lost: tuple[RankHeard, ...] = ()
    still_s: int = MAX_NUMBER
    #: Counts the publications of its leader, so that readers recognise an old group.
    beat: int = 0
    others: Mapping[str, Mapping[int, tuple[int, bytes]]] = field(default_factory=dict)
    cpu_waits: Mapping[str, Histogram] = field(default_factory=dict)
    between: Mapping[str, Histogram] = field(default_factory=dict)
    unclear: int = 0


# ---- histograms


def bucket_of(ms: float) -> int:
    """Return the bucket of a time."""
    us = ms * 1000.0
    return 0 if us <= 1.0 else min(MAX_BUCKET, 1 + int(math.log(us) / _LOG_WIDTH))


def middle_ms(bucket: float) -> float:
    """Return the time in the middle of a bucket."""
    return 0.0 if bucket < 1 else math.exp((bucket - 0.5) * _LOG_WIDTH) / 1000.0


def quantile_ms(of: Histogram, part: float) -> float:
    """Return the time below which ``part`` of the values lie, spread evenly within a bucket."""
    wanted = part * sum(of.values())
    below = 0
    last = max(of, default=0)
    for bucket in sorted(of):
        count = of[bucket]
        if below + count >= wanted or bucket == last:
            return middle_ms(bucket - 0.5 + (wanted - below) / count)
        below += count
    return 0.0


def _added(a: Histogram, b: Histogram) -> Histogram:
    if len(a) < len(b):
        a, b = b, a
    found = dict(a)
    for bucket, count in b.items():
        found[bucket] = found.get(bucket, 0) + count
    return found


# ---- making and merging


def group_of(
    job: str, world_size: int, ranks: Mapping[int, HeardRank], now: float, silent_s: float,
    patience_s: float,
) -> RankGroup:  # fmt: skip
    """Return the group of ``ranks``.

    Args:
        now: on the clock of their arrival times.
        silent_s: after this time a rank counts as without a heartbeat.
        patience_s: a rank that has ended no step for this long is quiet.
    """
    blocks: dict[str, dict[Block, dict[int, int]]] = {}
    works: dict[str, dict[int, int]] = {}
    walls: dict[str, dict[int, int]] = {}
    sections: dict[str, dict[str, dict[int, int]]] = {}
    most: list[tuple[int, int, RankWindow]] = []
    others: dict[str, list[tuple[int, int, RankWindow]]] = {}
    cpu_waits: dict[str, dict[int, int]] = {}
    between: dict[str, dict[int, int]] = {}
    for number, rank in ranks.items():
        if rank.window.ended or now - rank.heard >= silent_s or not rank.lives:
            continue
        starts = window_starts(rank, rank.size, end_of(rank)) if rank.blocks else []
        run = run_in_blocks(rank, rank.size, starts) if starts else None
        if run is None or run.steps is None:
            continue
        signal = waiting_signals([run])[0]
        own = own_ms(run, run.steps, signal)
        mean = fmean(own)
        _count_steps(blocks, works, signal, rank.size, Series(run.steps.numbers, own))
        if signal in ENGINE and run.steps.cpu is not None:
            cpu = Series(run.steps.numbers, run.steps.cpu)
            _count_steps(blocks, works, CPU, rank.size, cpu)
            at = (round(fmean(cpu.ms) * 1000), -number, rank.window)
            others.setdefault(CPU, []).append(at)
        if run.steps.cpu_wait is not None:
            _count(cpu_waits.setdefault(signal, {}), fmean(run.steps.cpu_wait))
        for phase, us in rank.window.between.items():
            if phase in BETWEEN and us > 0:
                _count(between.setdefault(phase, {}), us / 1000)
        if outside := sum(rank.window.between.values()):
            others.setdefault(BETWEEN_STEPS, []).append((outside, -number, rank.window))
        _count(walls.setdefault(signal, {}), fmean(run.steps.wall))
        named = sections.setdefault(signal, {})
        for name, ms in sections_of(run, signal, starts[0], starts[-1]).items():
            if name in named or len(named) < MAX_SECTIONS:
                _count(named.setdefault(name, {}), ms)
        most.append((round(mean * 1000), -number, rank.window))
    active = [r for r in ranks.values() if r.lives and not r.window.ended and r.window.steps]
    silent = [r for r in active if now - r.heard >= silent_s]
    quiet = [r for r in active if now - r.moved >= patience_s and now - r.heard < silent_s]
    stand = [r for r in quiet if not is_waiting(r.window)]
    return RankGroup(
        job, world_size, len(ranks), sum(r.window.ended for r in ranks.values()),
        blocks, works, walls, sections,
        _windows_of(most, MOST),
        len(active), len(quiet), len(quiet) - len(stand), len(silent),
        _named(_heard(r, now - r.moved) for r in stand),
        _named(_heard(r, now - r.heard) for r in silent),
        int(min((now - r.moved for r in active), default=MAX_NUMBER)), 0,
        {kind: _windows_of(rows, MOST_OTHER) for kind, rows in others.items()},
        cpu_waits, between, sum(is_unclear(r.window) for r in quiet),
    )  # fmt: skip


def merge(a: RankGroup, b: RankGroup) -> RankGroup:
    """Return the group of the ranks of both; they must have no rank in common.

    Raises:
        ValueError: they are of different jobs.
    """
    if (a.job, a.world_size) != (b.job, b.world_size):
        raise ValueError(
            f"these are groups of different jobs: {a.job!r} of {a.world_size} ranks, {b.job!r} of "
            f"{b.world_size}"
        )
    return RankGroup(
        a.job, a.world_size, a.heard + b.heard, a.ended + b.ended,
        {s: _joined_blocks(a.blocks.get(s, {}), b.blocks.get(s, {}))
         for s in _keys(a.blocks, b.blocks)},
        _joined(a.works, b.works),
        _joined(a.walls, b.walls),
        {s: _few(_joined(a.sections.get(s, {}), b.sections.get(s, {})))
         for s in _keys(a.sections, b.sections)},
        _most_of_both(a.most, b.most, MOST),
        a.active + b.active, a.quiet + b.quiet, a.waiting + b.waiting, a.silent + b.silent,
        _named([*a.standing, *b.standing]),
        _named([*a.lost, *b.lost]),
        min(a.still_s, b.still_s), max(a.beat, b.beat),
        {kind: _most_of_both(a.others.get(kind, {}), b.others.get(kind, {}), MOST_OTHER)
         for kind in _keys(a.others, b.others)},
        _joined(a.cpu_waits, b.cpu_waits),
        _joined(a.between, b.between),
        a.unclear + b.unclear,
    )  # fmt: skip


def _count(of: dict[int, int], ms: float) -> None:
    bucket = bucket_of(ms)
    of[bucket] = of.get(bucket, 0) + 1


def _count_steps(
    blocks: dict[str, dict[Block, dict[int, int]]],
    works: dict[str, dict[int, int]],
    signal: str,
    size: int,
    of: Series,
) -> None:
    """Count the time of one rank in each of its blocks, and its mean over the window."""
    there = blocks.setdefault(signal, {})
    for start, ms in zip(of.numbers, of.ms, strict=True):
        _count(there.setdefault((size, start), {}), ms)
    _count(works.setdefault(signal, {}), fmean(of.ms))


def _most(row: tuple[int, int, RankWindow]) -> tuple[int, int]:
    return row[:2]


def _windows_of(
    rows: Collection[tuple[int, int, RankWindow]], most: int
) -> dict[int, tuple[int, bytes]]:
    return {-at: (us, encode(window)) for us, at, window in nlargest(most, rows, key=_most)}


def _most_of_both(
    a: Mapping[int, tuple[int, bytes]], b: Mapping[int, tuple[int, bytes]], most: int
) -> dict[int, tuple[int, bytes]]:
    rows = [(us, -rank, value) for of in (a, b) for rank, (us, value) in of.items()]
    return {-at: (us, value) for us, at, value in nlargest(most, rows)}


def _keys(a: Collection[str], b: Collection[str]) -> list[str]:
    return sorted({*a, *b})


def _joined(a: Mapping[str, Histogram], b: Mapping[str, Histogram]) -> dict[str, Histogram]:
    return {name: _added(a.get(name, {}), b.get(name, {})) for name in _keys(a, b)}


def _joined_blocks(
    a: Mapping[Block, Histogram], b: Mapping[Block, Histogram]
) -> dict[Block, Histogram]:
    # The newest of all are among the newest of each, so the order of merging does not matter.
    kept = nlargest(MAX_BLOCKS, {*a, *b}, key=newest_first)
    return {block: _added(a.get(block, {}), b.get(block, {})) for block in kept}


def newest_first(block: Block) -> tuple[int, int]:
    return block[1], block[0]


def _few(of: dict[str, Histogram]) -> dict[str, Histogram]:
    return {name: of[name] for name in sorted(of)[:MAX_SECTIONS]}


def _heard(rank: HeardRank, seconds: float) -> RankHeard:
    window = rank.window
    return RankHeard(
        window.rank, window.host[:MAX_NAME], window.place[: 2 * MAX_NAME], window.steps,
        int(seconds),
    )  # fmt: skip


def _named(ranks: Any) -> tuple[RankHeard, ...]:
    return tuple(nsmallest(MOST, ranks, key=lambda one: one.rank))
