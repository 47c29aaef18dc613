"""Prints the text reports of a run."""

import sys
from collections.abc import Callable
from typing import Any

from fastprof.guards import own_errors
from fastprof.names import encodable
from fastprof.session.faults import Faults
from fastprof.session.output.periodic import final_report, periodic_report, timings
from fastprof.session.part import Part
from fastprof.snapshot import Snapshot


class ReportPrinter(Part):
    """Writes a report every some steps and a final one, if the program wants them.

    A failing stream is reported once and not used again.

    Args:
        take: returns the run's snapshot.
        memory_line: returns a line on memory after that many steps.
    """

    kind = "report"

    def __init__(
        self,
        take: Callable[[], Snapshot],
        memory_line: Callable[[int], str | None],
        is_primary: Callable[[], bool],
        faults: Faults,
    ) -> None:
        self._take = take
        self._memory_line = memory_line
        self._is_primary = is_primary
        self._faults = faults
        self._every = 0  # nothing is printed, or nothing more
        self._sort = ""
        self._stream: Any = None

    def print_every(self, steps: int, sort: str, stream: Any) -> None:
        """Print the sections every ``steps`` steps and at the end; call before the start."""
        self._every, self._sort, self._stream = steps, sort, stream

    @property
    def has_output(self) -> bool:
        return bool(self._every)

    def next_step(self, count: int) -> int:
        """Return the first step after ``count`` with a report."""
        return (count // self._every + 1) * self._every if self._every else sys.maxsize

    def at_step(self, count: int) -> None:
        """Print the report after ``count`` steps if it is due."""
        if self._every and count % self._every == 0 and self._is_primary():
            text = periodic_report(timings(self._take(), self._sort), count)
            line = self._memory_line(count)
            self._print(text if line is None else f"{text}\n{line}\n")

    def publish(self, count: int) -> None:
        """Print the report of the whole run."""
        if self._every and self._is_primary():
            self._print(final_report(timings(self._take(), self._sort), count))

    def _print(self, text: str) -> None:
        try:
            # Looked up now: programs and test runners replace sys.stdout.
            stream = sys.stdout if self._stream is None else self._stream
            stream.write(encodable(f"{text}\n", stream))
            flush = getattr(stream, "flush", None)
            if flush is not None:
                flush()
        except own_errors() as error:  # closed, full, or any error of a user's stream
            if self._faults.is_gap("stream_errors", error):
                return
            self._every = 0
            self._faults.add(
                "stream_errors", "The text reports failed and were switched off", error
            )
