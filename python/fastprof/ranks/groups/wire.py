"""Converts groups of ranks to and from bytes.

As with windows, the result of :func:`decode_group` is consistent, wherever the bytes come from.
"""

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fastprof.ranks.groups.summary import (
    BETWEEN_STEPS,
    CPU,
    MAX_BLOCKS,
    MAX_BUCKET,
    MAX_SECTIONS,
    MOST,
    MOST_OTHER,
    Block,
    Histogram,
    RankGroup,
    RankHeard,
    newest_first,
)
from fastprof.ranks.live.window import MAX_BYTES, decode
from fastprof.ranks.live.wire import (
    MAX_NAME,
    fail,
    newest_that_fit,
    numbers_of,
    pack,
    text_of,
    unpack,
)
from fastprof.ranks.model import SIGNALS
from fastprof.ranks.row import BETWEEN

#: Version of the format; a reader ignores other versions.
VERSION = 3
#: Most bytes of a value, compressed and uncompressed.
MAX_GROUP_BYTES = 1 << 16
_MAX_TEXT = 1 << 20
_MAX_RANKS = 10**9


def encode_group(group: RankGroup) -> bytes:
    """Return ``group`` as at most MAX_GROUP_BYTES bytes; drop the oldest blocks if necessary."""

    def packed(newest: Sequence[Block]) -> bytes:
        kept = set(newest)
        return pack(
            {
                "v": VERSION, "job": group.job, "of": group.world_size,
                "counts": [group.heard, group.ended, group.active, group.quiet, group.waiting,
                           group.silent, group.still_s, group.beat, group.unclear],
                "blocks": {
                    signal: [[*block, *_dense(of)] for block, of in found.items()
                             if block in kept]
                    for signal, found in group.blocks.items()
                },
                "works": _wire(group.works), "walls": _wire(group.walls),
                "sections": {s: _wire(of) for s, of in group.sections.items()},
                "most": _wire_windows(group.most),
                "others": {kind: _wire_windows(of) for kind, of in group.others.items()},
                "cpu_waits": _wire(group.cpu_waits), "between": _wire(group.between),
                "standing": [_row(one) for one in group.standing],
                "lost": [_row(one) for one in group.lost],
            },
            1,
        )  # fmt: skip

    blocks = {block for of in group.blocks.values() for block in of}
    return newest_that_fit(sorted(blocks, key=newest_first), packed, MAX_GROUP_BYTES)


def decode_group(data: bytes) -> RankGroup:
    """Return the group in bytes of :func:`encode_group`.

    Raises:
        ValueError: it is something else, or of another version.
    """
    d = unpack(data, MAX_GROUP_BYTES, _MAX_TEXT, VERSION)
    counts = numbers_of(d.get("counts"), 9)
    if len(counts) != 9:
        fail()
    heard, ended, active, quiet, waiting, silent, still_s, beat, unclear = counts
    world = numbers_of([d.get("of")], 1)[0]
    if not max(ended, active) <= heard <= world or max(quiet, silent) > active:
        fail()
    if waiting + unclear > quiet:
        fail()
    works = {_signal(s): _sparse(of) for s, of in _items(d.get("works"), len(SIGNALS))}
    walls = {_signal(s): _sparse(of) for s, of in _items(d.get("walls"), len(SIGNALS))}
    ranks = {s: sum(of.values()) for s, of in works.items()}
    # CPU times are those of some of the same ranks.
    if ranks.pop(CPU, 0) > heard or ranks != {s: sum(of.values()) for s, of in walls.items()}:
        fail()
    if sum(ranks.values()) > heard:
        fail()
    most = dict(_window(row) for row in _rows(d.get("most"), MOST, 3))
    others = {
        _one_of(kind, (CPU, BETWEEN_STEPS)): dict(map(_window, _rows(of, MOST_OTHER, 3)))
        for kind, of in _items(d.get("others", {}), 2)
    }
    cpu_waits = {_signal(s): _sparse(of) for s, of in _items(d.get("cpu_waits", {}), len(SIGNALS))}
    between = {_one_of(name, BETWEEN): _sparse(of) for name, of in _items(d.get("between", {}), 3)}
    if sum(sum(of.values()) for of in cpu_waits.values()) > heard:
        fail()
    if any(sum(of.values()) > heard for of in between.values()):
        fail()
    standing = tuple(_seen(row) for row in _rows(d.get("standing"), MOST, 5))
    lost = tuple(_seen(row) for row in _rows(d.get("lost"), MOST, 5))
    there = (*most, *(rank for of in others.values() for rank in of))
    if max((*there, *(one.rank for one in (*standing, *lost))), default=-1) >= world:
        fail()
    return RankGroup(
        text_of(d.get("job")), world, heard, ended,
        {_signal(s): _blocks(of) for s, of in _items(d.get("blocks"), len(SIGNALS))},
        works,
        walls,
        {_signal(s): {text_of(name): _sparse(h) for name, h in _items(of, MAX_SECTIONS)}
         for s, of in _items(d.get("sections"), len(SIGNALS))},
        most, active, quiet, waiting, silent, standing, lost, still_s, beat, others, cpu_waits,
        between, unclear,
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


def _wire_windows(of: Mapping[int, tuple[int, bytes]]) -> list[list[object]]:
    return [[rank, us, b64encode(value).decode("ascii")] for rank, (us, value) in of.items()]


def _signal(name: str) -> str:
    return _one_of(name, SIGNALS)


def _one_of(name: str, known: Collection[str]) -> str:
    if name not in known:
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
    numbers = numbers_of(value, MAX_BUCKET + 2)
    if (
        not numbers
        or numbers[0] + len(numbers) - 2 > MAX_BUCKET
        or max(numbers[1:], default=0) > (_MAX_RANKS)
    ):
        fail()
    low = numbers[0]
    return {low + i: count for i, count in enumerate(numbers[1:]) if count}


def _blocks(value: object) -> dict[Block, Histogram]:
    if not isinstance(value, list) or len(value) > MAX_BLOCKS:
        fail()
    found: dict[Block, Histogram] = {}
    for row in value:
        numbers = numbers_of(row, MAX_BUCKET + 4)
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
