"""The number of steps of a run, set by ``fastprof run --steps N``.

Data loaders deliver no more batches after this many steps, so loops end as at the end of their
data.  A program that reads ``FASTPROF_STEPS`` can set up its trainer for it.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

VARIABLE = "FASTPROF_STEPS"


def steps_wanted() -> int | None:
    """Return the number in ``FASTPROF_STEPS``; None if the variable is not set."""
    value = os.environ.get(VARIABLE, "")
    if value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 0:
        return int(value)
    return None


def limited(
    next_batch: Callable[[int, Iterator[Any], Any], Any], at_limit: Callable[[], bool]
) -> Callable[[int, Iterator[Any], Any], Any]:
    """Return a ``next_batch`` that delivers nothing while ``at_limit()``."""

    def next_within_limit(tag: int, iterator: Iterator[Any], section: Any) -> Any:
        if at_limit():
            raise StopIteration
        return next_batch(tag, iterator, section)

    return next_within_limit
