"""The part of a snapshot about loaders and their batches.

Times are integer nanoseconds.  A *pass* is one iteration over the loader: an epoch.
"""

from dataclasses import dataclass
from typing import Annotated

from fastprof.snapshot.codec import Count, Record, Row
from fastprof.snapshot.kinds import Integer, Known, WrongError

#: Rows of ``WorkerStats.depth``: 0, 1, 2 to 3, 4 to 7, ... 64 and more batches.
DEPTHS = 8

#: More workers than anyone starts; a larger number is damage.
MAX_WORKERS = 65_536


@dataclass(frozen=True, slots=True)
class LoadTime(Row):
    """Load times of one worker: number of batches, their sum and the longest."""

    worker: Count
    count: Count
    sum_ns: Count
    max_ns: Count


@dataclass(frozen=True, slots=True)
class WorkerStats(Record):
    """One loader's worker processes, and its cost outside of steps.

    ``workers`` is 0 for a loader that loads in the training process.  ``prefetch`` is in batches
    per worker.  ``cpus`` is the number that this process may use.  Of the batches except the first
    of each pass, ``ready`` were available at the call of ``next()``, which took ``ready_ns`` in
    all; for ``blocked`` the loop waited, ``blocked_ns`` in all.  ``depth`` counts the batches ready
    at ``next()``, by power of two (see :data:`DEPTHS`).

    ``loads`` are load times per worker: measured inside the workers if ``measured``, else by
    watching batches arrive while the loop waited for them.  ``caught_up`` are the calls of
    ``next()`` that found all requested batches, with the time since the last request.

    The pairs are (count, sum_ns): ``starts`` of iterating that started workers (or none),
    ``resumes`` with kept workers, ``firsts`` first batches of a pass, ``shutdowns``,
    ``caught_up``, and ``between``: the work of measured steps from a batch to the next request to
    this loader in the same pass, without any loading (None: an older file).  ``died`` workers ended
    too early.  ``profiled`` of ``processes`` started worker processes had their functions recorded,
    in single batches only if ``windows`` (None: an older file).
    """

    workers: Annotated[int, Integer(0, MAX_WORKERS)]
    prefetch: Count | None = None
    batch_size: Count | None = None
    persistent: bool = False
    start_method: str | None = None
    cpus: Count | None = None
    ready: Count = 0
    ready_ns: Count = 0
    blocked: Count = 0
    blocked_ns: Count = 0
    depth: tuple[Count, ...] = (0,) * DEPTHS
    loads: tuple[LoadTime, ...] = ()
    measured: bool = False
    starts: tuple[Count, Count] = (0, 0)
    resumes: tuple[Count, Count] = (0, 0)
    firsts: tuple[Count, Count] = (0, 0)
    shutdowns: tuple[Count, Count] = (0, 0)
    caught_up: tuple[Count, Count] = (0, 0)
    between: tuple[Count, Count] | None = None
    died: Count = 0
    processes: Count = 0
    profiled: Count = 0
    windows: bool | None = None

    def check(self, known: Known) -> None:
        if len(self.depth) != DEPTHS:
            raise WrongError(len(self.depth), f"{DEPTHS} integers", ".depth")
