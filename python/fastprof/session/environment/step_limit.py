"""The number of steps of a run, set by ``fastprof run --steps N``.

Data loaders deliver no more batches after this many steps, so loops end as at the end of their
data.  A program that reads ``FASTPROF_STEPS`` can set up its trainer for it.
"""

import os
from collections.abc import Callable
from typing import Any, Protocol

VARIABLE = "FASTPROF_STEPS"

#: ``Recorder.next_batch``.
NextBatch = Callable[..., Any]


def steps_wanted() -> int | None:
    """Return the number in ``FASTPROF_STEPS``; None if the variable is not set."""
    value = os.environ.get(VARIABLE, "")
    if value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 0:
        return int(value)
    return None


class _Loop(Protocol):
    """The part of a run that the limit uses."""

    @property
    def running(self) -> bool: ...
    @property
    def steps(self) -> int: ...


class StepLimit:
    """The limit of one run."""

    def __init__(self, run: _Loop) -> None:
        self._run = run
        #: Number of steps after which loaders deliver nothing; None: no limit.
        self.steps = steps_wanted()
        #: A loader delivered nothing because of it.
        self.has_ended_loaders = False

    def is_reached(self) -> bool:
        """Return whether loaders deliver nothing any more; called before each batch."""
        run = self._run
        if self.steps is None or not run.running or run.steps < self.steps:
            return False
        self.has_ended_loaders = True
        return True

    def applied(self, next_batch: NextBatch) -> NextBatch:
        """Return a ``next_batch`` that delivers nothing once the limit is reached."""
        if self.steps is None:
            return next_batch

        def next_within_limit(*args: Any) -> Any:
            if self.is_reached():
                raise StopIteration
            return next_batch(*args)

        return next_within_limit
