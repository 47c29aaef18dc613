"""The part of a snapshot about how a loader comes by its batches.

Times are integer nanoseconds.  A *pass* is one iteration over the loader: an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fastprof.snapshot.fields import as_dict, as_int, as_ints, as_list, as_str, fail

#: Rows of ``WorkerStats.depth``: 0, 1, 2 to 3, 4 to 7, ... 64 and more batches.
DEPTHS = 8

#: More workers than anyone starts; a number beyond it is damage.
MAX_WORKERS = 65_536


@dataclass(frozen=True, slots=True)
class LoadTime:
    """How long one worker took per batch: of ``count`` batches the sum and the longest."""

    worker: int
    count: int
    sum_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """One loader's worker processes, and what it costs outside the step.

    ``workers`` is 0 for a loader that loads in the training process.  ``prefetch`` is in
    batches per worker.  ``cpus`` are those this process may use.  Of the batches but the
    first of each pass, ``ready`` were there when ``next()`` asked, which took ``ready_ns`` in
    all, ``blocked`` were waited for, ``blocked_ns`` in all.  ``depth`` counts how many batches
    were ready at ``next()``, by power of two (see :data:`DEPTHS`).

    ``loads`` are load times per worker: taken inside the workers if ``measured``, else by
    watching batches arrive while the loop waited for them.  ``caught_up`` are the calls of
    ``next()`` that found all batches that were asked for, and the time since the last one was.

    The pairs are (count, sum_ns): ``starts`` of iterating that started workers (or none),
    ``resumes`` with workers that were kept, ``firsts`` first batches of a pass,
    ``shutdowns``, and ``caught_up``.  ``died`` workers ended before they were told to.
    ``profiled`` is of how many worker processes the functions were recorded, out of
    ``processes`` started.
    """

    workers: int
    prefetch: int | None = None
    batch_size: int | None = None
    persistent: bool = False
    start_method: str | None = None
    cpus: int | None = None
    ready: int = 0
    ready_ns: int = 0
    blocked: int = 0
    blocked_ns: int = 0
    depth: tuple[int, ...] = (0,) * DEPTHS
    loads: tuple[LoadTime, ...] = ()
    measured: bool = False
    starts: tuple[int, int] = (0, 0)
    resumes: tuple[int, int] = (0, 0)
    firsts: tuple[int, int] = (0, 0)
    shutdowns: tuple[int, int] = (0, 0)
    caught_up: tuple[int, int] = (0, 0)
    died: int = 0
    processes: int = 0
    profiled: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers: what ``json.dumps`` accepts."""
        out: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("depth", *_PAIRS, "caught_up"):
            out[name] = list(out[name])
        out["loads"] = [[t.worker, t.count, t.sum_ns, t.max_ns] for t in self.loads]
        return out


_PAIRS = ("starts", "resumes", "firsts", "shutdowns")
_COUNTS = ("ready", "blocked", "blocked_ns", "died", "processes", "profiled")
_FLAGS = ("persistent", "measured")
_OPTIONAL = ("prefetch", "batch_size", "cpus")


def read_workers(value: object, where: str) -> WorkerStats | None:
    """Check the field ``workers`` of a loader; None: nothing is known about them.

    Raises:
        SnapshotError: a value is missing, of the wrong type, or out of range.
    """
    if value is None:
        return None
    v = as_dict(value, where)
    numbers: dict[str, Any] = {name: as_int(v.get(name), f"{where}.{name}") for name in _COUNTS}
    for name in _OPTIONAL:
        numbers[name] = None if v.get(name) is None else as_int(v[name], f"{where}.{name}")
    for name in _FLAGS:
        if type(v.get(name)) is not bool:
            raise fail(f"{where}.{name}", v.get(name), "true or false")
        numbers[name] = v[name]
    for name in _PAIRS:
        count, sum_ns = as_ints(v.get(name), f"{where}.{name}", 2)
        numbers[name] = (count, sum_ns)
    # Files of before it was timed have neither.
    numbers["ready_ns"] = as_int(v.get("ready_ns", 0), f"{where}.ready_ns")
    count, sum_ns = as_ints(v.get("caught_up", [0, 0]), f"{where}.caught_up", 2)
    numbers["caught_up"] = (count, sum_ns)
    method = v.get("start_method")
    return WorkerStats(
        workers=as_int(v.get("workers"), f"{where}.workers", 0, MAX_WORKERS),
        start_method=None if method is None else as_str(method, f"{where}.start_method"),
        depth=tuple(as_ints(v.get("depth"), f"{where}.depth", DEPTHS)),
        loads=tuple(
            LoadTime(*as_ints(row, f"{where}.loads[{i}]", 4))
            for i, row in enumerate(as_list(v.get("loads"), f"{where}.loads"))
        ),
        **numbers,
    )
