"""Sums of a segment of the history about what runs next to the steps: they explain changes."""

from dataclasses import astuple, dataclass
from typing import TypeVar

from fastprof.snapshot.codec import Count, Record


@dataclass(frozen=True, slots=True)
class Loading(Record):
    """What the training loader's workers did.

    ``workers`` is their number at the end.  Of ``batches`` the loop waited for ``blocked``,
    ``blocked_ns`` in all.  ``loads`` are batches whose load time in a worker is known.
    """

    workers: Count
    batches: Count
    blocked: Count
    blocked_ns: Count
    loads: Count
    load_ns: Count


@dataclass(frozen=True, slots=True)
class GpuClock(Record):
    """Samples of a GPU: the sums of its clock in MHz, and of its temperature in C.

    Of ``judged`` samples ``slowed`` had clocks that were throttled, not only by the power cap.
    """

    clocks: Count
    clock_mhz: Count
    temperatures: Count
    temperature_c: Count
    judged: Count
    slowed: Count


@dataclass(frozen=True, slots=True)
class Passes(Record):
    """Numbers of passes of validation and of checkpoints that began."""

    validation: Count
    checkpoint: Count


_R = TypeVar("_R", Loading, GpuClock, Passes)


def added(a: _R | None, b: _R | None) -> _R | None:
    """Return the sums of two neighbours; None: one of them is unknown."""
    if a is None or b is None:
        return None
    sums = [x + y for x, y in zip(astuple(a), astuple(b), strict=True)]
    if isinstance(b, Loading):
        sums[0] = b.workers
    return type(b)(*sums)


def grown(now: _R | None, before: _R | None) -> _R | None:
    """Return the sums since ``before``; None: unknown, or they began anew."""
    if now is None or before is None:
        return None
    sums = [x - y for x, y in zip(astuple(now), astuple(before), strict=True)]
    if isinstance(now, Loading):
        sums[0] = now.workers
    return type(now)(*sums) if min(sums) >= 0 else None
