"""The frozen :class:`Report`: what one recording shows, as data.

The rows of its tables are in :mod:`fastprof.report.rows`; :mod:`fastprof.report.build` makes it
of a recording, and :mod:`fastprof.results` gives users its outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastprof.errors import UnknownSectionError
from fastprof.report.compilations import CompileReport
from fastprof.report.functions import functions_in, functions_outside
from fastprof.report.kernels import kernels_in, kernels_of
from fastprof.report.loaders import LoaderRow
from fastprof.report.model_gpu import GpuReport, KernelRow, KernelUse, MemoryReport
from fastprof.report.operators import OperatorReport
from fastprof.report.phase_names import ALIASES
from fastprof.report.rows import (
    UNACCOUNTED,
    FunctionRow,
    Overhead,
    SectionRow,
    StepTable,
    ThreadTable,
)
from fastprof.report.run_phases import PhaseRow, is_scaled
from fastprof.report.stages import StageRow
from fastprof.snapshot import Snapshot, Steps


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """Everything that one recording tells.

    ``snapshot`` is the recording.  ``has_tree`` is False for a report read from a ``.stats`` file,
    which holds functions and their callers but no contexts.  ``gpu`` is None without a GPU layer;
    ``memory`` and ``operators`` are None if they were not recorded.
    """

    meta: Mapping[str, str | int | float | bool | None]
    wall_ms: float
    sections: tuple[SectionRow, ...]
    steps: StepTable
    functions: Sequence[FunctionRow]
    threads: tuple[ThreadTable, ...]
    loaders: tuple[LoaderRow, ...]
    overhead: Overhead
    notes: tuple[str, ...]
    snapshot: Snapshot
    #: The part of ``snapshot`` that the tables describe: ``phase`` only.
    view: Snapshot
    #: The phase of the run that sections, functions and kernels describe; ``"all"``: the whole run.
    phase: str = "all"
    #: Every phase of the run; empty: the recording has none.
    phases: tuple[PhaseRow, ...] = ()
    has_tree: bool = True
    #: Whether fastprof's cost, as far as it is known, is subtracted.
    correct_times: bool = True
    gpu: GpuReport | None = None
    kernels: tuple[KernelRow, ...] = ()
    memory: MemoryReport | None = None
    operators: OperatorReport | None = None
    #: One table per loader: the functions in its worker processes, separate from this process.
    worker_functions: tuple[ThreadTable, ...] = ()
    #: Parts of the steps with another optimizer on other data; empty: the run has one.
    stages: tuple[StageRow, ...] = ()
    #: None: nothing was compiled.
    compilations: CompileReport | None = None
    #: The steps without the function hook, if a budget left it out of most; ``steps`` are those in
    #: which functions were recorded.
    plain: StepTable | None = None
    #: What was computed from the report and is needed again, by name.
    known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def mark(self) -> str:
        """``"~"`` before figures of functions that were scaled from windows of time; else empty."""
        return "~" if is_scaled(self.snapshot, self.phase) else ""

    @property
    def shown_steps(self) -> StepTable:
        """The steps whose times a reader wants: the plain ones, if they are most."""
        return self.plain or self.steps

    @property
    def measured_steps(self) -> int:
        """How many steps were measured, with functions and without; of all stages."""
        if self.stages:
            return sum(stage.steps for stage in self.stages)
        return self.steps.measured + (self.plain.measured if self.plain is not None else 0)

    @property
    def shown_snapshot_steps(self) -> Steps:
        """The same as recorded."""
        plain = self.snapshot.plain_steps
        return plain if self.plain is not None and plain is not None else self.snapshot.steps

    def section(self, name: str) -> SectionRow:
        """Return the row of a section; both names of a training phase find it.

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

    def functions_in(self, section: str) -> tuple[FunctionRow, ...]:
        """Return the functions that ran inside a section, nested sections included.

        A row of kind ``section`` holds the self time of the section's code, so the self times add
        up to the section's total.  ``"(unaccounted)"`` gives the functions that the training thread
        called outside of all sections.

        Raises:
            UnknownSectionError: as :meth:`section`.
        """
        corrected = self.overhead.corrected
        if section == UNACCOUNTED and any(row.name == UNACCOUNTED for row in self.steps.rows):
            return functions_outside(self.view, correct_times=corrected)
        return functions_in(self.view, self.section_name(section), correct_times=corrected)

    def kernels_in(self, section: str) -> tuple[KernelUse, ...]:
        """Return the kernels launched inside a section, nested sections included.

        Empty without a GPU layer.

        Raises:
            UnknownSectionError: as :meth:`section`.
        """
        return kernels_in(self.view, self.section_name(section))

    def kernels_of(self, function: FunctionRow) -> tuple[KernelUse, ...]:
        """Return the kernels launched by a function of the table, or below it.

        Empty without a GPU layer.
        """
        return kernels_of(self.view, function)
