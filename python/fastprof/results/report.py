"""The report that ``Profiler.report`` returns; a method imports what it needs when it is called."""

import os
from typing import Any, TextIO

from fastprof.render import formats
from fastprof.report import build, model
from fastprof.report.figures import duration, number, plural
from fastprof.report.findings import Examination, Finding
from fastprof.results.result import Result, as_result, returning


class Report(Result, model.Report):
    """The data of :class:`fastprof.report.model.Report`, and its outputs."""

    __slots__ = ()

    def in_phase(self, phase: str) -> "Report":
        """Return the report on another phase of the run.

        Args:
            phase: a name from :attr:`phases`, or ``"all"`` for the whole run.

        Raises:
            ValueError: there is no such phase, or it is empty.
        """
        return as_result(Report, build.in_phase(self, phase))

    @property
    def examination(self) -> Examination:
        """Return every rule's result; see :class:`~fastprof.report.findings.Examination`."""
        from fastprof.findings.examine import examine

        return examine(self)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the suggested changes, largest first; empty if there are none."""
        return self.examination.findings

    def to_text(self, *, full: bool = False) -> str:
        """Return the report as plain text.

        Args:
            full: the whole report, at full table width; else one screen of 100 columns.
        """
        return formats.render(self, "text" if full else "screen")

    def to_json(self) -> str:
        """Return the report as JSON; ``fastprof.export.json_`` describes its layout."""
        return formats.render(self, "json")

    def to_markdown(self) -> str:
        """Return a summary of at most 60 lines and 4 kB, for a ticket."""
        return formats.render(self, "markdown")

    def to_csv(self, table: str = "functions") -> str:
        """Return one table as CSV.

        Args:
            table: ``"functions"``, ``"sections"``, ``"step_sections"``, ``"steps"`` (one row each,
                the last 4096), ``"kernels"`` or ``"loaders"``.

        Raises:
            ValueError: no such table.
        """
        return formats.render(self, "csv", table=table)

    def to_frame(self, table: str = "functions") -> Any:
        """Return one table as a pandas ``DataFrame``; tables are those of :meth:`to_csv`.

        Args:
            table: its name.

        Raises:
            ValueError: no such table.
            ImportError: pandas is not installed.
        """
        from fastprof.tables.columns import frame

        return frame(self, table)

    def show(self, stream: TextIO | None = None, *, full: bool = False) -> None:
        """Write the report, at most as wide as the stream.

        Args:
            stream: where; None: ``sys.stdout``.
            full: the whole report, not one screen.
        """
        from fastprof.render import terminal

        terminal.show(self, stream, full=full)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file in the format that its suffix names, completely or not at all.

        ``.fprof`` (the recording), ``.stats`` ``.prof`` ``.pstats``, ``.json``, ``.txt``,
        ``.html``, ``.speedscope.json``, ``.collapsed`` ``.folded``; the last two by GPU time:
        ``.gpu.speedscope.json``, ``.gpu.collapsed`` ``.gpu.folded``; ``.callgrind``, ``.csv``
        (functions) and ``.md`` (a summary).

        Args:
            path: the file.

        Raises:
            ExportError: no format has that suffix, the report lacks data that the format needs, or
                a package is missing; the message says which.
            OSError: the file cannot be written; an earlier file is unchanged.
        """
        formats.save(self, path)

    def __repr__(self) -> str:
        steps = self.steps
        mean = "" if steps.mean_ms is None else f" of {duration(steps.mean_ms)}"
        program = self.meta.get("command")
        of = "" if program is None else f" {str(program)!r:.80}"
        return (
            f"<fastprof.Report{of}: {plural(steps.count, 'step')}{mean}, "
            f"{plural(len(self.functions), 'function')}, {number(self.wall_ms / 1000)} s recorded>"
        )


build_report = returning(Report, build.build_report, __name__)
