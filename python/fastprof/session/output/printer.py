"""Prints the text reports of a run."""

import sys
from collections.abc import Callable
from typing import Any

from fastprof.guards import own_errors
from fastprof.names import encodable
from fastprof.session.faults import Faults
from fastprof.session.output.periodic import final_report, periodic_report, timings
from fastprof.snapshot import Snapshot


class ReportPrinter:
    """Writes a report every ``every`` steps and a final one.

    A failing stream is reported once and not used again: ``works`` is then False.
    """

    def __init__(
        self, every: int, sort: str, stream: Any, is_primary: Callable[[], bool], faults: Faults
    ) -> None:
        self.works = True
        self._every = every
        self._sort = sort
        self._stream = stream
        self._is_primary = is_primary
        self._faults = faults

    def next_step(self, count: int) -> int:
        """Return the first step after ``count`` with a report."""
        return (count // self._every + 1) * self._every if self.works else sys.maxsize

    def at_step(
        self, take: Callable[[], Snapshot], step: int, memory_line: Callable[[int], str | None]
    ) -> None:
        """Print the report after ``step`` steps if it is due, and the text of ``memory_line``."""
        if self.works and step % self._every == 0 and self._is_primary():
            text = periodic_report(timings(take(), self._sort), step)
            line = memory_line(step)
            self._print(text if line is None else f"{text}\n{line}\n")

    def print_final(self, take: Callable[[], Snapshot], steps: int) -> None:
        """Print the report of the whole run."""
        if self.works and self._is_primary():
            self._print(final_report(timings(take(), self._sort), steps))

    def _print(self, text: str) -> None:
        try:
            # Looked up now: programs and test runners replace sys.stdout.
            stream = sys.stdout if self._stream is None else self._stream
            stream.write(encodable(f"{text}\n", stream))
            flush = getattr(stream, "flush", None)
            if flush is not None:
                flush()
        except own_errors() as error:  # closed, full, or any error of a user's stream
            self.works = False
            self._faults.add(
                "stream_errors", "The text reports failed and were switched off", error
            )
