"""The part of a snapshot about source lines: samples of where functions of the program were."""

from dataclasses import dataclass

from fastprof.snapshot.codec import Count, KeyIndex, Row

#: Those with most samples are kept.
MAX_LINES = 10_000


@dataclass(frozen=True, slots=True)
class LineSamples(Row):
    """A line of a function and the samples that found the function there, or in calls from it.

    ``line`` is a number in the function's file.  A sample counts each open function once, so the
    rows of a function add up to the samples that found it.
    """

    key: KeyIndex
    line: Count
    samples: Count
