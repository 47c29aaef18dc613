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
    """Samples of the process's GPUs: sums of their clocks in MHz, and temperatures in C.

    Of ``judged`` samples ``slowed`` had clocks that were throttled, not only by the power cap.
    They are of ``devices`` GPUs (None: unknown).
    """

    clocks: Count
    clock_mhz: Count
    temperatures: Count
    temperature_c: Count
    judged: Count
    slowed: Count
    devices: Count | None = None


@dataclass(frozen=True, slots=True)
class Passes(Record):
    """Numbers of passes of validation and of checkpoints that began."""

    validation: Count
    checkpoint: Count


#: Places of what is no sum: the later one counts.
_NO_SUMS: dict[type[Record], int] = {Loading: 0, GpuClock: 6}

_R = TypeVar("_R", Loading, GpuClock, Passes)


def added(a: _R | None, b: _R | None) -> _R | None:
    """Return the sums of two neighbours; None: one of them is unknown."""
    return None if a is None or b is None else _with(b, a, 1)


def grown(now: _R | None, before: _R | None) -> _R | None:
    """Return the sums since ``before``; None: unknown, or they began anew."""
    if now is None or before is None:
        return None
    made = _with(now, before, -1)
    return made if min(n or 0 for n in astuple(made)) >= 0 else None


def _with(later: _R, other: _R, factor: int) -> _R:
    pairs = zip(astuple(later), astuple(other), strict=True)
    sums = [(x or 0) + factor * (y or 0) for x, y in pairs]
    at = _NO_SUMS.get(type(later))
    if at is not None:
        sums[at] = astuple(later)[at]
    return type(later)(*sums)
