"""Stages of a run: parts of its steps with another optimizer on other data."""

from dataclasses import dataclass
from typing import Annotated

from fastprof.snapshot.codec import Count, Record
from fastprof.snapshot.kinds import AtMost

#: A run with more has none: they are folds of a cross-validation, or clients, in a loop.
MAX_STAGES = 8
#: As many as the series of steps has.
_MAX_SECTIONS = 64


@dataclass(frozen=True, slots=True)
class Stage(Record):
    """One stage; times are integer nanoseconds.

    ``first`` is the 0-based number of its first step, ``steps`` the number of its measured steps.
    The times are those of the last ``timed`` of them (at most 4096): their sum, their median and
    95th percentile, and the sums of the top-level sections (none: unknown).  ``optimizer`` is a
    class, ``loader`` a loader's name; empty: none.
    """

    first: Count
    steps: Count
    optimizer: str
    loader: str
    timed: Count
    sum_ns: Count
    p50_ns: Count
    p95_ns: Count
    sections: Annotated[tuple[tuple[str, Count], ...], AtMost(_MAX_SECTIONS, "sections")] = ()
