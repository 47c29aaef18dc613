"""The model of a report: the frozen :class:`Report` and the rows of its tables.

Times are milliseconds, shares are fractions of 1, and what is not known is None, never
0.  Behaviour is in :mod:`fastprof.report.build`; outputs are in ``fastprof.export``
and ``fastprof.render``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from fastprof.errors import UnknownSectionError
from fastprof.render import formats
from fastprof.report.figures import duration, number, plural
from fastprof.report.findings import Examination, Finding
from fastprof.report.in_run import UnprofiledStep
from fastprof.report.loaders import LoaderRow
from fastprof.report.model_gpu import (
    GpuReport,
    GpuUse,
    HasGpu,
    KernelRow,
    KernelUse,
    MemoryReport,
)
from fastprof.report.operators import OperatorReport
from fastprof.report.outliers import Outlier
from fastprof.report.run_phases import PhaseRow
from fastprof.report.steps import SplitRow, StepSeriesView
from fastprof.snapshot import Snapshot

#: The two names that each of the four phases may have.
ALIASES: Mapping[str, str] = {
    "data": "data_loading",
    "forward": "forward_pass",
    "backward": "backward_pass",
    "optimizer": "optimizer_step",
    "data_loading": "data",
    "forward_pass": "forward",
    "backward_pass": "backward",
    "optimizer_step": "optimizer",
}

#: Name of what the top-level sections of a step leave over.
UNACCOUNTED = "(unaccounted)"


@dataclass(frozen=True, slots=True)
class SectionRow(HasGpu):
    """One section name, over all threads.

    ``total_ms`` is the time during which the section was open (recursion counted once),
    with the hook's own cost subtracted; ``raw_total_ms`` is the same as measured.
    ``self_ms`` leaves out the sections nested in it.  ``mean_ms`` to ``p99_ms`` describe
    single entries, corrected in the same proportion as the total.  ``share`` is of the
    recorded wall time; with several threads the shares may add up to more than 1.
    Everything is None that a section left no sample for.  ``gpu`` is what it gave the GPU
    to do, None where there was no GPU layer; ``gpu_ms``, ``kernels``, ``blocked_ms`` are
    its main figures.
    """

    name: str
    count: int
    total_ms: float | None
    self_ms: float | None
    mean_ms: float | None
    min_ms: float | None
    max_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    share: float | None
    errors: int
    open: int
    raw_total_ms: float | None
    gpu: GpuUse | None = None


@dataclass(frozen=True, slots=True)
class StepSection:
    """A top-level section inside the measured steps, or ``(unaccounted)``.

    ``mean_ms`` is per measured step, whether the section ran in it or not; ``steps`` is
    in how many it ran (None for ``(unaccounted)``).
    """

    name: str
    steps: int | None
    total_ns: int
    mean_ms: float
    share: float | None

    @property
    def total_ms(self) -> float:
        """Time over all measured steps in ms."""
        return self.total_ns / 1e6


@dataclass(frozen=True, slots=True)
class StepTable:
    """Steps of the training thread, as measured (nothing subtracted).

    ``count`` steps ended; all but the first ``skipped`` and ``apart`` later ones, which were
    made without the function hook, were measured.  ``rows`` add up
    to ``wall_ns`` exactly, as do those of ``split``: what the time was spent on.  What it
    lacks and why is in ``split_missing``.  ``cv`` is standard deviation over mean.
    """

    count: int
    skipped: int
    wall_ns: int | None
    mean_ms: float | None
    min_ms: float | None
    max_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    cv: float | None
    rows: tuple[StepSection, ...]
    series: StepSeriesView = field(default_factory=StepSeriesView)
    split: tuple[SplitRow, ...] = ()
    split_missing: tuple[str, ...] = ()
    #: Garbage collections in the measured steps per generation; empty: not known.
    gc_runs: tuple[int, ...] = ()
    #: Steps that took more than 1.5 times the median, slowest first.
    outliers: tuple[Outlier, ...] = ()
    apart: int = 0
    #: The time of a step without fastprof; None: not known.
    unprofiled: UnprofiledStep | None = None

    @property
    def measured(self) -> int:
        """Number of steps the figures are over."""
        return max(0, self.count - self.skipped - self.apart)

    @property
    def wall_ms(self) -> float | None:
        """Wall time of all measured steps in ms."""
        return None if self.wall_ns is None else self.wall_ns / 1e6


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """A caller of a function, or a function it calls, with what the calls took."""

    qualname: str
    file: str
    line: int
    calls: int
    primitive_calls: int
    resumes: int
    self_ms: float
    cum_ms: float


@dataclass(frozen=True, slots=True)
class FunctionRow(HasGpu):
    """One function.

    ``calls`` are entries, of which ``primitive_calls`` were not inside another activation
    of the function; ``resumes`` are continuations of a generator or coroutine.  ``share``
    is ``self_ms`` over the self time of all functions.  ``kind`` is ``python``, ``c``,
    ``type`` (a constructor) or, for what a section does itself in
    :meth:`Report.functions_in`, ``section``.  ``gpu`` is what it gave the GPU to do, None
    where there was no GPU layer.
    """

    qualname: str
    name: str
    file: str
    line: int
    kind: str
    calls: int
    primitive_calls: int
    resumes: int
    self_ms: float
    cum_ms: float
    raw_self_ms: float
    raw_cum_ms: float
    share: float | None
    callers: tuple[EdgeRow, ...]
    callees: tuple[EdgeRow, ...]
    gpu: GpuUse | None = None


@dataclass(frozen=True, slots=True)
class ThreadTable:
    """The functions of one thread; ``ident`` 0 is all ended threads together."""

    ident: int
    name: str
    ended: bool
    total_ms: float
    raw_total_ms: float
    functions: tuple[FunctionRow, ...]


@dataclass(frozen=True, slots=True)
class Overhead:
    """The profiler's own cost.

    ``estimated_ms`` and ``share`` (of wall time) are the most that all parts together took,
    ``least_share`` is the least; None when no part is known.  They differ where the run could
    not measure what the hook cost.  ``functions_ms`` is estimated from call counts and the
    calibrated hook, ``bytecode_ms`` is the most that bytecode took longer under the hook
    (Python 3.10 and 3.11).
    ``sections_ms`` is what sections, steps, loaders and the hooks on trainers took,
    ``windows_ms`` what operator windows did.  ``corrected`` says whether ``functions_ms`` was
    subtracted from functions and sections; ``clamped_ms`` is what of it could not be.
    ``steps_share`` is the part of the measured steps' time that the profiler took in them at
    most (operator windows are in no step), ``least_steps_share`` at least; None where none were
    measured.  ``own_step_ms`` is the part of ``sections_ms`` in one measured step: most of it is
    in no section.
    """

    estimated_ms: float | None
    share: float | None
    corrected: bool
    clamped_ms: float
    text: str
    functions_ms: float | None = None
    bytecode_ms: float = 0.0
    sections_ms: float | None = None
    windows_ms: float = 0.0
    steps_share: float | None = None
    least_share: float | None = None
    least_steps_share: float | None = None
    own_step_ms: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """Everything one recording says.

    ``snapshot`` is what it was made from.  ``has_tree`` is False for a report read from
    a ``.stats`` file, which knows functions and their callers but no contexts.  ``gpu`` is
    None where no GPU layer was asked for, ``memory`` and ``operators`` where these were not
    recorded.
    """

    meta: Mapping[str, str | int | float | bool | None]
    wall_ms: float
    sections: tuple[SectionRow, ...]
    steps: StepTable
    functions: tuple[FunctionRow, ...]
    threads: tuple[ThreadTable, ...]
    loaders: tuple[LoaderRow, ...]
    overhead: Overhead
    notes: tuple[str, ...]
    snapshot: Snapshot
    #: The part of ``snapshot`` that the tables are made from: what happened in ``phase``.
    view: Snapshot
    #: The phase of the run that sections, functions and kernels are of; ``"all"``: the whole.
    phase: str = "all"
    #: Every phase of the run; empty: the recording knows none.
    phases: tuple[PhaseRow, ...] = ()
    has_tree: bool = True
    gpu: GpuReport | None = None
    kernels: tuple[KernelRow, ...] = ()
    memory: MemoryReport | None = None
    operators: OperatorReport | None = None
    #: One table per loader: the functions in its worker processes, beside this one's time.
    worker_functions: tuple[ThreadTable, ...] = ()
    # The rules walk the tree, and one output asks for them in several places.
    _examined: list[Examination] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def section(self, name: str) -> SectionRow:
        """Return the row of a section; each phase is found by either of its two names.

        Raises:
            UnknownSectionError: (a KeyError) no such section; the message lists them.
        """
        name = self.section_name(name)
        return next(row for row in self.sections if row.name == name)

    def section_name(self, name: str) -> str:
        """Return the name under which the section ``name`` was recorded.

        Raises:
            UnknownSectionError: as :meth:`section`.
        """
        names = [row.name for row in self.sections]
        for candidate in (name, ALIASES.get(name)):
            if candidate in names:
                return str(candidate)
        known = ", ".join(repr(n) for n in names) or "none"
        raise UnknownSectionError(f"no section {name!r:.80} was recorded; there are: {known}")

    def in_phase(self, phase: str) -> Report:
        """Return the report on another phase of the run.

        Args:
            phase: a name from :attr:`phases`, or ``"all"`` for the whole run.

        Raises:
            ValueError: there is no such phase, or nothing was recorded in it.
        """
        from fastprof.report.build import build_report

        return build_report(self.snapshot, correct_times=self.overhead.corrected, phase=phase)

    def functions_in(self, section: str) -> tuple[FunctionRow, ...]:
        """Return the functions that ran inside a section, nested sections included.

        A row of kind ``section`` holds what the section's own code took, so the self
        times add up to the section's total.

        Raises:
            UnknownSectionError: as :meth:`section`.
        """
        from fastprof.report.build import functions_in

        return functions_in(self, self.section_name(section))

    def kernels_in(self, section: str) -> tuple[KernelUse, ...]:
        """Return the kernels launched inside a section, nested sections included.

        Empty without a GPU layer.

        Raises:
            UnknownSectionError: as :meth:`section`.
        """
        from fastprof.report.build import kernels_in

        return kernels_in(self, self.section_name(section))

    def kernels_of(self, function: FunctionRow) -> tuple[KernelUse, ...]:
        """Return the kernels launched by a function of the table, or below it.

        Empty without a GPU layer.
        """
        from fastprof.report.build import kernels_of

        return kernels_of(self, function)

    @property
    def examination(self) -> Examination:
        """Every rule's answer; see :class:`~fastprof.report.findings.Examination`."""
        if not self._examined:
            self._examined.append(formats.examine(self))
        return self._examined[0]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What to change, largest first; empty where nothing needs to be."""
        return self.examination.findings

    def to_text(self, *, full: bool = False) -> str:
        """Return the report as plain ASCII text.

        Args:
            full: everything, tables as wide as they are; else what fits on one screen of
                100 columns.
        """
        return formats.render(self, "text" if full else "screen")

    def to_json(self) -> str:
        """Return the report as JSON; see ``fastprof.export.json_`` for its layout."""
        return formats.render(self, "json")

    def to_markdown(self) -> str:
        """Return a summary of at most 60 lines and 4 kB, for a ticket."""
        return formats.render(self, "markdown")

    def to_csv(self, table: str = "functions") -> str:
        """Return one table as CSV: ``"functions"``, ``"sections"``, ``"step_sections"``,
        ``"steps"`` (one row each, the last 4096), ``"kernels"`` or ``"loaders"``.

        Raises:
            ValueError: no such table.
        """
        return formats.render(self, "csv", table=table)

    def to_frame(self, table: str = "functions") -> Any:
        """Return one table as a pandas ``DataFrame``; tables are those of :meth:`to_csv`.

        Raises:
            ValueError: no such table.
            ImportError: pandas is not installed.
        """
        return formats.frame(self, table)

    def _repr_html_(self) -> str:
        """The report as a notebook shows it."""
        return formats.render(self, "notebook")

    def show(self, stream: TextIO | None = None, *, full: bool = False) -> None:
        """Write the report to ``stream`` (None: ``sys.stdout``), no wider than it is.

        Args:
            stream: where to.
            full: everything; else what fits on one screen.
        """
        formats.show(self, stream, full=full)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file in the format its suffix names, completely or not at all.

        ``.fprof`` (the run itself), ``.stats`` ``.prof`` ``.pstats``, ``.json``,
        ``.txt``, ``.html``, ``.speedscope.json``, ``.collapsed`` ``.folded``; the latter two by GPU
        time: ``.gpu.speedscope.json``, ``.gpu.collapsed`` ``.gpu.folded``; ``.callgrind``,
        ``.csv`` (functions) and ``.md`` (a summary).

        Raises:
            ExportError: no format has that suffix, the report lacks what the format
                shows, or a package that it needs is missing; the message says which.
            OSError: the file cannot be written; what was there before is untouched.
        """
        formats.save(self, path)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        steps = self.steps
        mean = "" if steps.mean_ms is None else f" of {duration(steps.mean_ms)}"
        program = self.meta.get("command")
        of = "" if program is None else f" {str(program)!r:.80}"
        return (
            f"<fastprof.Report{of}: {plural(steps.count, 'step')}{mean}, "
            f"{plural(len(self.functions), 'function')}, {number(self.wall_ms / 1000)} s recorded>"
        )
