"""Replay files: CUPTI's data for fastprof in one run.  README.md describes the format."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FORMAT = "fastprof-cupti-replay"
FORMAT_VERSION = 1

CALL = struct.Struct("<QIIIIII")
MEMCPY, MEMSET, KERNEL, PEER = 1, 2, 10, 22
KERNEL_NAME = 104
#: Kind -> offset of the start; equal in every release.
TIMES = {KERNEL: 16, MEMCPY: 16, PEER: 16, MEMSET: 16}
COPIES = {1: -1, 3: -1, 2: -2, 4: -2, 8: -3, 5: -3, 6: -3, 7: -3, 9: -5, 10: -4}


@dataclass(frozen=True)
class Call:
    """A callback: time, thread (numbers from 0), domain, cbid, 0 enter or 1 exit, id."""

    at: int
    thread: int
    domain: int
    cbid: int
    site: int
    correlation: int


@dataclass(frozen=True)
class Buffer:
    """A completed buffer; the name in a kernel's record is its number + 1, or 0."""

    at: int
    stream: int
    records: bytes


@dataclass(frozen=True)
class Replay:
    """A replay file; ``sizes`` are bytes of a record by kind."""

    about: dict[str, Any]
    cupti_version: int
    clock_ns: int
    sizes: dict[int, int]
    names: list[str]
    calls: list[Call]
    buffers: list[Buffer]
    dropped: int
    expected: dict[str, Any]


def records(replay: Replay) -> Iterator[bytes]:
    """Yield every record of every buffer."""
    for buffer in replay.buffers:
        at = 0
        while at < len(buffer.records):
            size = replay.sizes[int.from_bytes(buffer.records[at : at + 4], "little")]
            yield buffer.records[at : at + size]
            at += size


def totals(replay: Replay) -> dict[str, Any]:
    """Return the sums of the activities, read here independently of fastprof.

    ``kernels``: name -> [count, ns]; ``copies``: fastprof's number of the direction, or -7
    for memsets -> [count, ns, bytes].  Records without valid times are left out.
    """
    kernels: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    copies: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for record in records(replay):
        kind = int.from_bytes(record[:4], "little")
        if kind not in TIMES:
            continue
        start, end = struct.unpack_from("<QQ", record, TIMES[kind])
        if start == 0 or end < start:
            continue
        if kind == KERNEL:
            number = struct.unpack_from("<Q", record, KERNEL_NAME)[0]
            row = kernels[replay.names[number - 1] if number else "(unnamed kernel)"]
        else:
            what = -4 if kind == PEER else -7 if kind == MEMSET else COPIES.get(record[4], -6)
            row = copies[str(what)]
            row[2] += struct.unpack_from("<Q", record, 8)[0]
        row[0] += 1
        row[1] += end - start
    return {"kernels": dict(sorted(kernels.items())), "copies": dict(sorted(copies.items()))}


def recorded_totals(gpu: dict[str, Any]) -> dict[str, Any]:
    """Return the same for the tables of a recording, ``Recorder.export()["gpu"]``."""
    kernels: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    copies: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in gpu["kernels"]:
        kernels[row[0]][0] += row[12]
        kernels[row[0]][1] += row[13]
    for row in gpu["activity"]:
        if row[5] < 0:
            for i, value in enumerate(row[6:9]):
                copies[str(row[5])][i] += value
    return {"kernels": dict(sorted(kernels.items())), "copies": dict(sorted(copies.items()))}


def save(replay: Replay, path: Path) -> None:
    """Write a file; the same recording gives the same bytes."""
    calls = b"".join(
        CALL.pack(c.at, c.thread, c.domain, c.cbid, c.site, c.correlation, 0) for c in replay.calls
    )
    data = asdict(replay) | {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "sizes": {str(kind): size for kind, size in sorted(replay.sizes.items())},
        "calls": base64.b64encode(calls).decode(),
        "buffers": [[b.at, b.stream, base64.b64encode(b.records).decode()] for b in replay.buffers],
    }
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def load(path: Path) -> Replay:
    """Read a file; ValueError if it is not a replay file."""
    data = json.loads(gzip.decompress(path.read_bytes()))
    if data.get("format") != FORMAT or data.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"{path} is no {FORMAT} of version {FORMAT_VERSION}: record it anew")
    return Replay(
        about=data["about"],
        cupti_version=data["cupti_version"],
        clock_ns=data["clock_ns"],
        sizes={int(kind): size for kind, size in data["sizes"].items()},
        names=data["names"],
        calls=[Call(*c[:6]) for c in CALL.iter_unpack(base64.b64decode(data["calls"]))],
        buffers=[Buffer(at, stream, base64.b64decode(b)) for at, stream, b in data["buffers"]],
        dropped=data["dropped"],
        expected=data["expected"],
    )
