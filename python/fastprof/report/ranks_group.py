"""Small, mergeable summaries of the last windows of many ranks, for large jobs.

A leader makes a group of the windows of some ranks, others merge such groups, and rank 0 judges
the result.  A group has histograms of own work per block of steps, and the windows of the few
ranks with the most own work.  :func:`merge` is associative and commutative, so groups can be
merged along any tree.  As with windows, the result of :func:`decode_group` is consistent,
wherever the bytes come from.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from statistics import fmean
from typing import Any

from fastprof.report.ranks import SIGNALS
from fastprof.report.ranks_blocks import HeardRank, end_of, run_in_blocks, window_starts
from fastprof.report.ranks_cause import own_ms, sections_of
from fastprof.report.ranks_verdict import waiting_signals
from fastprof.report.ranks_window import MAX_BYTES, RankWindow, decode, encode
from fastprof.report.ranks_wire import MAX_NAME, MAX_NUMBER, fail, numbers_of, pack, text_of, unpack

#: Version of the format; a reader ignores other versions.
VERSION = 1
#: Most bytes of a value, compressed and uncompressed.
MAX_GROUP_BYTES = 1 << 16
_MAX_TEXT = 1 << 20
#: Each bucket is wider than the last by this factor: its middle is within 1 % of its values.
_WIDTH = 1.01
_LOG_WIDTH = math.log(_WIDTH)
_MAX_BUCKET = 2500
_MAX_BLOCKS = 48
#: Number of kept windows of ranks with the most own work; of silent and standing ranks named.
MOST = 6
_MAX_SECTIONS = 12
_MAX_RANKS = 10**9

#: Number of values by bucket.
Histogram = Mapping[int, int]
#: Steps of a block, and the number of its first step.
Block = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RankHeard:
    """A rank that is silent or stands: its last known place, ``seconds`` ago."""

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

    ``active`` ranks train.  ``quiet`` of these have ended no step for long; ``waiting`` of the
    quiet ones wait for others, and ``standing`` lists some of the rest.  ``silent`` ranks have
    not been heard for long; ``lost`` lists some.  For ``still_s`` no rank has ended a step.
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


# ---- histograms


def bucket_of(ms: float) -> int:
    """Return the bucket of a time."""
    us = ms * 1000.0
    return 0 if us <= 1.0 else min(_MAX_BUCKET, 1 + int(math.log(us) / _LOG_WIDTH))


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
        job, world_size: of the job.
        ranks: by number.
        now: on the clock of their arrival times.
        silent_s: a rank that was not heard for this long is silent.
        patience_s: a rank that has ended no step for this long is quiet.
    """
    blocks: dict[str, dict[Block, dict[int, int]]] = {}
    works: dict[str, dict[int, int]] = {}
    walls: dict[str, dict[int, int]] = {}
    sections: dict[str, dict[str, dict[int, int]]] = {}
    most: list[tuple[int, int, RankWindow]] = []
    for number, rank in ranks.items():
        if rank.window.ended or now - rank.heard >= silent_s or not rank.lives:
            continue
        starts = window_starts(rank, rank.size, end_of(rank)) if rank.blocks else []
        run = run_in_blocks(rank, rank.size, starts) if starts else None
        if run is None or run.steps is None:
            continue
        signal = waiting_signals([run])[0]
        own = own_ms(run, run.steps, signal)
        there = blocks.setdefault(signal, {})
        for start, ms in zip(run.steps.numbers, own, strict=True):
            _count(there.setdefault((rank.size, start), {}), ms)
        mean = fmean(own)
        _count(works.setdefault(signal, {}), mean)
        _count(walls.setdefault(signal, {}), fmean(run.steps.wall))
        named = sections.setdefault(signal, {})
        for name, ms in sections_of(run, signal, starts[0], starts[-1]).items():
            if name in named or len(named) < _MAX_SECTIONS:
                _count(named.setdefault(name, {}), ms)
        most.append((round(mean * 1000), -number, rank.window))
    active = [r for r in ranks.values() if r.lives and not r.window.ended and r.window.steps]
    silent = [r for r in active if now - r.heard >= silent_s]
    quiet = [r for r in active if now - r.moved >= patience_s and now - r.heard < silent_s]
    stand = [r for r in quiet if not r.window.waits]
    return RankGroup(
        job, world_size, len(ranks), sum(r.window.ended for r in ranks.values()),
        blocks, works, walls, sections,
        {-at: (us, encode(window)) for us, at, window in nlargest(MOST, most, key=_most)},
        len(active), len(quiet), len(quiet) - len(stand), len(silent),
        _named(_heard(r, now - r.moved) for r in stand),
        _named(_heard(r, now - r.heard) for r in silent),
        int(min((now - r.moved for r in active), default=MAX_NUMBER)),
    )  # fmt: skip


def merge(a: RankGroup, b: RankGroup) -> RankGroup:
    """Return the group of the ranks of both; they must have no rank in common.

    Raises:
        ValueError: they are of different jobs.
    """
    if (a.job, a.world_size) != (b.job, b.world_size):
        raise ValueError(
            f"these are groups of different jobs: {a.job!a} of {a.world_size} ranks, {b.job!a} of "
            f"{b.world_size}"
        )
    most = nlargest(
        MOST, [(us, -rank, value) for of in (a.most, b.most) for rank, (us, value) in of.items()]
    )
    return RankGroup(
        a.job, a.world_size, a.heard + b.heard, a.ended + b.ended,
        {s: _joined_blocks(a.blocks.get(s, {}), b.blocks.get(s, {}))
         for s in _keys(a.blocks, b.blocks)},
        _joined(a.works, b.works),
        _joined(a.walls, b.walls),
        {s: _few(_joined(a.sections.get(s, {}), b.sections.get(s, {})))
         for s in _keys(a.sections, b.sections)},
        {-at: (us, value) for us, at, value in most},
        a.active + b.active, a.quiet + b.quiet, a.waiting + b.waiting, a.silent + b.silent,
        _named([*a.standing, *b.standing]),
        _named([*a.lost, *b.lost]),
        min(a.still_s, b.still_s), max(a.beat, b.beat),
    )  # fmt: skip


def _count(of: dict[int, int], ms: float) -> None:
    bucket = bucket_of(ms)
    of[bucket] = of.get(bucket, 0) + 1


def _most(row: tuple[int, int, RankWindow]) -> tuple[int, int]:
    return row[:2]


def _keys(a: Collection[str], b: Collection[str]) -> list[str]:
    return sorted({*a, *b})


def _joined(a: Mapping[str, Histogram], b: Mapping[str, Histogram]) -> dict[str, Histogram]:
    return {name: _added(a.get(name, {}), b.get(name, {})) for name in _keys(a, b)}


def _joined_blocks(
    a: Mapping[Block, Histogram], b: Mapping[Block, Histogram]
) -> dict[Block, Histogram]:
    # The newest of all are among the newest of each, so the order of merging does not matter.
    kept = nlargest(_MAX_BLOCKS, {*a, *b}, key=_newest)
    return {block: _added(a.get(block, {}), b.get(block, {})) for block in kept}


def _newest(block: Block) -> tuple[int, int]:
    return block[1], block[0]


def _few(of: dict[str, Histogram]) -> dict[str, Histogram]:
    return {name: of[name] for name in sorted(of)[:_MAX_SECTIONS]}


def _heard(rank: HeardRank, seconds: float) -> RankHeard:
    window = rank.window
    return RankHeard(
        window.rank, window.host[:MAX_NAME], window.place[: 2 * MAX_NAME], window.steps,
        int(seconds),
    )  # fmt: skip


def _named(ranks: Any) -> tuple[RankHeard, ...]:
    return tuple(nsmallest(MOST, ranks, key=lambda one: one.rank))


# ---- bytes


def encode_group(group: RankGroup, max_bytes: int = MAX_GROUP_BYTES) -> bytes:
    """Return ``group`` as at most ``max_bytes`` bytes; drop the oldest blocks if necessary."""
    newest = sorted({b for of in group.blocks.values() for b in of}, key=_newest)
    while True:
        kept = set(newest)
        data = pack(
            {
                "v": VERSION, "job": group.job, "of": group.world_size,
                "counts": [group.heard, group.ended, group.active, group.quiet, group.waiting,
                           group.silent, group.still_s, group.beat],
                "blocks": {
                    signal: [[*block, *_dense(of)] for block, of in found.items()
                             if block in kept]
                    for signal, found in group.blocks.items()
                },
                "works": _wire(group.works), "walls": _wire(group.walls),
                "sections": {s: _wire(of) for s, of in group.sections.items()},
                "most": [[rank, us, b64encode(value).decode("ascii")]
                         for rank, (us, value) in group.most.items()],
                "standing": [_row(one) for one in group.standing],
                "lost": [_row(one) for one in group.lost],
            },
            1,
        )  # fmt: skip
        if len(data) <= max_bytes or not newest:
            return data
        newest = newest[max(1, len(newest) // 8) :]


def decode_group(data: bytes) -> RankGroup:
    """Return the group in bytes of :func:`encode_group`.

    Raises:
        ValueError: it is something else, or of another version.
    """
    d = unpack(data, MAX_GROUP_BYTES, _MAX_TEXT, VERSION)
    counts = numbers_of(d.get("counts"), 8)
    if len(counts) != 8:
        fail()
    heard, ended, active, quiet, waiting, silent, still_s, beat = counts
    world = numbers_of([d.get("of")], 1)[0]
    if not max(ended, active) <= heard <= world or max(quiet, silent) > active or waiting > quiet:
        fail()
    works = {_signal(s): _sparse(of) for s, of in _items(d.get("works"), len(SIGNALS))}
    walls = {_signal(s): _sparse(of) for s, of in _items(d.get("walls"), len(SIGNALS))}
    if {s: sum(of.values()) for s, of in works.items()} != {
        s: sum(of.values()) for s, of in walls.items()
    }:
        fail()
    if sum(sum(of.values()) for of in works.values()) > heard:
        fail()
    most = dict(_window(row) for row in _rows(d.get("most"), MOST, 3))
    standing = tuple(_seen(row) for row in _rows(d.get("standing"), MOST, 5))
    lost = tuple(_seen(row) for row in _rows(d.get("lost"), MOST, 5))
    if max((*most, *(one.rank for one in (*standing, *lost))), default=-1) >= world:
        fail()
    return RankGroup(
        text_of(d.get("job")), world, heard, ended,
        {_signal(s): _blocks(of) for s, of in _items(d.get("blocks"), len(SIGNALS))},
        works,
        walls,
        {_signal(s): {text_of(name): _sparse(h) for name, h in _items(of, _MAX_SECTIONS)}
         for s, of in _items(d.get("sections"), len(SIGNALS))},
        most, active, quiet, waiting, silent, standing, lost, still_s, beat,
    )  # fmt: skip


def _dense(of: Histogram) -> list[int]:
    """Return the lowest bucket, and the counts from there on."""
    if not of:
        return [0]
    low, high = min(of), max(of)
    return [low, *(of.get(bucket, 0) for bucket in range(low, high + 1))]


def _wire(of: Mapping[str, Histogram]) -> dict[str, list[int]]:
    return {name[:MAX_NAME]: _dense(histogram) for name, histogram in of.items()}


def _row(one: RankHeard) -> list[object]:
    return [one.rank, one.host, one.place, one.steps, one.seconds]


def _signal(name: str) -> str:
    if name not in SIGNALS:
        fail()
    return name


def _items(value: object, most: int) -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or len(value) > most:
        fail()
    return list(value.items())


def _rows(value: object, most: int, width: int) -> list[list[Any]]:
    if not isinstance(value, list) or len(value) > most:
        fail()
    if any(not isinstance(row, list) or len(row) != width for row in value):
        fail()
    return value


def _sparse(value: object) -> dict[int, int]:
    numbers = numbers_of(value, _MAX_BUCKET + 2)
    if (
        not numbers
        or numbers[0] + len(numbers) - 2 > _MAX_BUCKET
        or max(numbers[1:], default=0) > (_MAX_RANKS)
    ):
        fail()
    low = numbers[0]
    return {low + i: count for i, count in enumerate(numbers[1:]) if count}


def _blocks(value: object) -> dict[Block, Histogram]:
    if not isinstance(value, list) or len(value) > _MAX_BLOCKS:
        fail()
    found: dict[Block, Histogram] = {}
    for row in value:
        numbers = numbers_of(row, _MAX_BUCKET + 4)
        if len(numbers) < 3 or numbers[0] < 1:
            fail()
        found[numbers[0], numbers[1]] = _sparse(numbers[2:])
    return found


def _window(row: Sequence[Any]) -> tuple[int, tuple[int, bytes]]:
    rank, us = numbers_of(list(row[:2]), 2)
    text = text_of(row[2], 2 * MAX_BYTES)
    value = b64decode(text, validate=True)
    if decode(value).rank != rank:
        fail()
    return rank, (us, value)


def _seen(row: Sequence[Any]) -> RankHeard:
    rank, steps, seconds = numbers_of([row[0], row[3], row[4]], 3)
    return RankHeard(rank, text_of(row[1]), text_of(row[2], 2 * MAX_NAME), steps, seconds)
