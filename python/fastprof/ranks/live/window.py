"""The message of a rank to the others while the job runs: a window of steps in at most 2 KiB.

Steps form blocks of 1, 2, 4, ... steps that begin at multiples of their length, so that
blocks of different ranks can be compared, and short ones joined into longer ones.  Anybody
who can write to the store or folder may write anything there: :func:`decode` returns
consistent windows only and raises ValueError otherwise.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fastprof.ranks.live.wire import (
    MAX_NAME,
    MAX_NUMBER,
    fail,
    newest_that_fit,
    numbers_of,
    pack,
    text_of,
    unpack,
)
from fastprof.ranks.row import BETWEEN

#: Version of the format; a reader ignores other versions.
VERSION = 1
#: Most bytes of a window and of a detail; ``_MAX_TEXT`` is for the uncompressed text.
MAX_BYTES = 2048
MAX_DETAIL_BYTES = 8192
_MAX_TEXT = 1 << 17
MAX_BLOCKS = 48
_MAX_SIZE = 1 << 20
_MAX_SECTIONS = 8
_MAX_FUNCTIONS = 24
_MAX_CALLED = 3
_MAX_FILE = 160

#: Columns of times in a block; the first is always known.  ``gpu_wait``: the GPU ran collectives
#: in which all ranks wait for the last, and computed nothing.
COLUMNS = ("wall", "cpu", "cpu_wait", "communication", "autograd", "gpu_wait")
#: With them, the share of a block's steps that were measured, in thousandths: steps without the
#: function hook are not.
MEASURED = "measured"

#: Times of a block of steps: microseconds per step, of its columns, then of its sections.
Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankWindow:
    """The last steps of a rank.

    ``job`` distinguishes jobs; ``process`` and ``parent`` are the numbers of the rank's process and
    of its parent (0: unknown).  ``beat`` counts the windows that it has published.  ``steps`` is
    the number of steps so far.  ``place`` is the position of its training thread; ``waits``: it
    waits, or may wait, for other ranks there.  ``ended``: its run is over.  ``blocks`` are rows by
    the number of the first step, ``size`` steps each, with ``columns`` of :data:`COLUMNS` and
    :data:`MEASURED`, and then ``sections``.  ``waiting`` is communication in microseconds per step
    by top-level section, ``between`` the times of phases of the run between steps, in microseconds
    per step of the last windows.  ``works``: between steps, its training thread has moved since the
    last window.  ``cuda``: the program uses a GPU, so ranks may wait for each other where the host
    waits for the GPU.  ``gpu_busy``: its GPU has unfinished work; None: unknown.  ``gpu_compute``
    is the time in which it computed, in microseconds per step since the last window; 0: unknown.
    """

    job: str
    rank: int
    world_size: int
    host: str
    beat: int
    steps: int
    phase: str = "steps"
    place: str = ""
    waits: bool = False
    ended: bool = False
    size: int = 1
    columns: tuple[str, ...] = ("wall",)
    sections: tuple[str, ...] = ()
    blocks: Mapping[int, Row] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    between: Mapping[str, int] = field(default_factory=dict)
    process: int = 0
    parent: int = 0
    works: bool = False
    cuda: bool = False
    gpu_busy: bool | None = None
    gpu_compute: int = 0


@dataclass(frozen=True, slots=True)
class RankDetail:
    """Times of the program's functions on a rank in steps ``first`` to ``last``.

    ``functions`` are (name, file, line, microseconds per step, times of library functions).
    ``number`` is the number of the request.
    """

    job: str
    rank: int
    number: int
    functions: tuple[tuple[str, str, int, int, Mapping[str, int]], ...]


@dataclass(frozen=True, slots=True)
class Request:
    """Rank 0 asks ``ranks`` for the times of their functions in steps ``first`` to ``last``.

    ``phase``: it asks for their functions in this phase of the run, between the steps.
    """

    job: str
    number: int
    first: int
    last: int
    ranks: tuple[int, ...]
    phase: str = ""


def is_waiting(window: RankWindow) -> bool:
    """Return whether a rank waits for others: its host does, or its GPU, which has work."""
    return window.waits or window.gpu_busy is True


def is_unclear(window: RankWindow) -> bool:
    """Return whether it is not known if a rank's GPU waits for others."""
    return window.cuda and not window.waits and window.gpu_busy is None


def encode(window: RankWindow, max_bytes: int = MAX_BYTES) -> bytes:
    """Return ``window`` as at most ``max_bytes`` bytes; drop the oldest blocks if necessary."""

    def packed(starts: Sequence[int]) -> bytes:
        rows = [window.blocks[start] for start in starts]
        return pack(
            {
                "v": VERSION, "job": window.job, "rank": window.rank, "of": window.world_size,
                "process": window.process, "parent": window.parent,
                "host": window.host[:MAX_NAME], "beat": window.beat, "steps": window.steps,
                "phase": window.phase, "place": window.place[: 2 * MAX_NAME],
                "waits": window.waits, "ended": window.ended, "size": window.size,
                "columns": window.columns,
                "sections": [name[:MAX_NAME] for name in window.sections],
                "starts": starts, "times": list(zip(*rows, strict=True)),
                "waiting": {name[:MAX_NAME]: us for name, us in window.waiting.items()},
                "between": dict(window.between), "works": window.works, "cuda": window.cuda,
                "gpu_busy": window.gpu_busy, "gpu_compute": window.gpu_compute,
            }
        )  # fmt: skip

    return newest_that_fit(sorted(window.blocks)[-MAX_BLOCKS:], packed, max_bytes)


def decode(data: bytes) -> RankWindow:
    """Return the window in bytes of :func:`encode`.

    Raises:
        ValueError: it is something else, or of another version.
    """
    d = unpack(data, MAX_BYTES, _MAX_TEXT, VERSION)
    size = _whole(d, "size", _MAX_SIZE, low=1)
    columns, sections = _names(d, "columns", len(COLUMNS) + 1), _names(d, "sections", _MAX_SECTIONS)
    if columns[:1] != ("wall",) or not set(columns) <= {*COLUMNS, MEASURED} or size & (size - 1):
        fail()
    starts = numbers_of(d.get("starts"), MAX_BLOCKS)
    if any(a >= b for a, b in pairwise(starts)):
        fail()
    if any(start % size for start in starts):
        fail()
    times = d.get("times")
    wide = len(columns) + len(sections)
    if not isinstance(times, list) or len(times) != (wide if starts else 0):
        fail()
    values = [numbers_of(column, MAX_BLOCKS) for column in times]
    if any(len(column) != len(starts) for column in values):
        fail()
    rows = list(zip(*values, strict=True))
    busy = d.get("gpu_busy")
    return RankWindow(
        job=text_of(d.get("job")),
        rank=_whole(d, "rank", MAX_NUMBER),
        world_size=_whole(d, "of", MAX_NUMBER, low=1),
        host=text_of(d.get("host")),
        beat=_whole(d, "beat", MAX_NUMBER),
        steps=_whole(d, "steps", MAX_NUMBER),
        phase=text_of(d.get("phase")),
        place=text_of(d.get("place"), 2 * MAX_NAME),
        waits=d.get("waits") is True,
        ended=d.get("ended") is True,
        size=size,
        columns=columns,
        sections=sections,
        blocks=dict(zip(starts, rows, strict=True)),
        waiting=_times(d.get("waiting"), _MAX_SECTIONS),
        between=_times(d.get("between", {}), len(BETWEEN)),
        process=_whole(d, "process", MAX_NUMBER),
        parent=_whole(d, "parent", MAX_NUMBER),
        works=d.get("works") is True,
        cuda=d.get("cuda") is True,
        gpu_busy=busy if isinstance(busy, bool) else None,
        gpu_compute=numbers_of([d.get("gpu_compute", 0)], 1)[0],
    )


def encode_detail(detail: RankDetail) -> bytes:
    """Return ``detail`` as at most :data:`MAX_DETAIL_BYTES`; drop the smallest functions."""
    functions = detail.functions[:_MAX_FUNCTIONS]
    while True:
        rows = [
            [name[:MAX_NAME], file[-_MAX_FILE:], line, us,
             {of[:MAX_NAME]: ns for of, ns in list(called.items())[:_MAX_CALLED]}]
            for name, file, line, us, called in functions
        ]  # fmt: skip
        data = pack(
            {"v": VERSION, "job": detail.job, "rank": detail.rank, "number": detail.number,
             "functions": rows}
        )  # fmt: skip
        if len(data) <= MAX_DETAIL_BYTES or not functions:
            return data
        functions = functions[: len(functions) // 2]


def decode_detail(data: bytes) -> RankDetail:
    """Return the detail in bytes of :func:`encode_detail`; raises like :func:`decode`."""
    d = unpack(data, MAX_DETAIL_BYTES, _MAX_TEXT, VERSION)
    rows = d.get("functions")
    if not isinstance(rows, list) or len(rows) > _MAX_FUNCTIONS:
        fail()
    functions = []
    for row in rows:
        if not isinstance(row, list) or len(row) != 5:
            fail()
        fields = dict(zip(("name", "file", "line", "us"), row, strict=False))
        functions.append(
            (
                text_of(fields.get("name")), text_of(fields.get("file"), _MAX_FILE),
                _whole(fields, "line", 10**9), _whole(fields, "us", MAX_NUMBER),
                _times(row[4], _MAX_CALLED),
            )
        )  # fmt: skip
    return RankDetail(
        text_of(d.get("job")),
        _whole(d, "rank", MAX_NUMBER),
        _whole(d, "number", MAX_NUMBER),
        tuple(functions),
    )


def encode_request(request: Request) -> bytes:
    return pack(
        {"v": VERSION, "job": request.job, "number": request.number, "first": request.first,
         "last": request.last, "ranks": request.ranks, "phase": request.phase}
    )  # fmt: skip


def decode_request(data: bytes) -> Request:
    """Return the request in bytes of :func:`encode_request`; raises like :func:`decode`."""
    d = unpack(data, MAX_BYTES, _MAX_TEXT, VERSION)
    return Request(
        text_of(d.get("job")),
        _whole(d, "number", MAX_NUMBER),
        _whole(d, "first", MAX_NUMBER),
        _whole(d, "last", MAX_NUMBER),
        tuple(numbers_of(d.get("ranks"), 64)),
        text_of(d.get("phase", "")),
    )


# ---- values from anywhere


def _whole(of: Mapping[str, object], name: str, most: int, low: int = 0) -> int:
    value = of.get(name)
    if type(value) is not int or not low <= value <= most:
        fail()
    return value


def _names(of: Mapping[str, object], name: str, most: int) -> tuple[str, ...]:
    value = of.get(name)
    if not isinstance(value, list) or len(value) > most:
        fail()
    if any(not isinstance(item, str) or len(item) > MAX_NAME for item in value):
        fail()
    if len(set(value)) != len(value):
        fail()
    return tuple(value)


def _times(value: object, most: int) -> dict[str, int]:
    if not isinstance(value, dict) or len(value) > most:
        fail()
    numbers_of(list(value.values()), most)
    if any(len(name) > MAX_NAME for name in value):
        fail()
    return value


# ---- blocks


def joined(rows: Mapping[int, Row], size: int, longer: int) -> dict[int, Row]:
    """Join blocks of ``size`` steps to blocks of ``longer`` steps; return the complete ones."""
    if longer == size:
        return dict(rows)
    found = {}
    there = Counter(start - start % longer for start in rows)
    for start in sorted(there):
        if there[start] < longer // size:
            continue
        parts = [rows.get(at) for at in range(start, start + longer, size)]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            found[start] = tuple(sum(column) // len(known) for column in zip(*known, strict=True))
    return found


def block_size(steps: int, blocks: int = 32) -> int:
    """Return the length of blocks so that ``steps`` steps make at most ``blocks`` blocks."""
    size = 1
    while steps > blocks * size and size < _MAX_SIZE:
        size *= 2
    return size


def measured(numbers: Sequence[int], size: int) -> list[int]:
    """Return a column for :func:`means` of which the mean is :data:`MEASURED`."""
    counts = Counter(number - number % size for number in numbers)
    return [counts[number - number % size] * 1_000_000 // size for number in numbers]


def means(columns: Sequence[Sequence[int]], numbers: Sequence[int], size: int) -> dict[int, Row]:
    """Return the mean of columns of ns per block of steps, in microseconds.

    Args:
        numbers: numbers of the steps, ascending.
        size: steps per block.
    """
    found = {}
    low = 0
    while low < len(numbers):
        start = numbers[low] - numbers[low] % size
        high = low
        while high < len(numbers) and numbers[high] < start + size:
            high += 1
        found[start] = tuple(
            max(0, round(sum(column[low:high]) / (high - low) / 1000)) for column in columns
        )
        low = high
    return found
