"""The frozen :class:`Report`, and its construction from a :class:`Snapshot`.

The rows of its tables are in :mod:`fastprof.report.rows`, outputs in ``fastprof.export`` and
``fastprof.render``.
"""

import html
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from fastprof.errors import UnknownSectionError
from fastprof.names import encodable
from fastprof.render import formats
from fastprof.report.correct import correct
from fastprof.report.figures import duration, number, plural
from fastprof.report.findings import Examination, Finding
from fastprof.report.flat import node_groups
from fastprof.report.functions import (
    functions,
    functions_in,
    functions_outside,
    worker_tables,
)
from fastprof.report.gpu import GpuTables, gpu_report, measured
from fastprof.report.kernels import kernel_rows, kernels_in, kernels_of
from fastprof.report.loaders import LoaderRow, loader_notes, loader_rows
from fastprof.report.loaders_compared import compared
from fastprof.report.memory import memory_report
from fastprof.report.model_gpu import GpuReport, KernelRow, KernelUse, MemoryReport
from fastprof.report.notes import beyond_notes, make_notes
from fastprof.report.operators import OperatorReport, operator_report
from fastprof.report.overhead import overhead_of
from fastprof.report.phase_names import ALIASES
from fastprof.report.rows import (
    UNACCOUNTED,
    FunctionRow,
    Overhead,
    SectionRow,
    StepTable,
    ThreadTable,
)
from fastprof.report.run_phases import (
    ALL,
    PhaseRow,
    beyond_steps_ns,
    chosen_phase,
    phase_rows,
    steps_in,
    view_of,
)
from fastprof.report.sections import row_groups, section_rows
from fastprof.report.stages import StageRow, stage_rows
from fastprof.report.step_table import step_table
from fastprof.report.threads import training_thread
from fastprof.snapshot import Snapshot
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS


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
    # The rules walk the tree, and one output needs their result in several places.
    _examined: list[Examination] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

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

    def in_phase(self, phase: str) -> "Report":
        """Return the report on another phase of the run.

        Args:
            phase: a name from :attr:`phases`, or ``"all"`` for the whole run.

        Raises:
            ValueError: there is no such phase, or it is empty.
        """
        if not self.has_tree:
            if phase == ALL:
                return self
            raise ValueError(f"no phase {phase!r:.80}: a .stats file has no phases of the run")
        return build_report(self.snapshot, correct_times=self.correct_times, phase=phase)

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

    @property
    def examination(self) -> Examination:
        """Return every rule's result; see :class:`~fastprof.report.findings.Examination`."""
        if not self._examined:
            self._examined.append(formats.examine(self))
        return self._examined[0]

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
        """Return the report as a notebook shows it."""
        return f"<pre>{html.escape(self.to_text())}</pre>"

    def show(self, stream: TextIO | None = None, *, full: bool = False) -> None:
        """Write the report to ``stream`` (None: ``sys.stdout``), at most as wide as the stream."""
        formats.show(self, stream, full=full)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file in the format that its suffix names, completely or not at all.

        ``.fprof`` (the recording), ``.stats`` ``.prof`` ``.pstats``, ``.json``, ``.txt``,
        ``.html``, ``.speedscope.json``, ``.collapsed`` ``.folded``; the last two by GPU time:
        ``.gpu.speedscope.json``, ``.gpu.collapsed`` ``.gpu.folded``; ``.callgrind``, ``.csv``
        (functions) and ``.md`` (a summary).

        Raises:
            ExportError: no format has that suffix, the report lacks data that the format needs, or
                a package is missing; the message says which.
            OSError: the file cannot be written; an earlier file is unchanged.
        """
        formats.save(self, path)

    def __str__(self) -> str:
        """Return the text for ``print``, which fails for what the encoding lacks."""
        return encodable(self.to_text(), sys.stdout)

    def __repr__(self) -> str:
        steps = self.steps
        mean = "" if steps.mean_ms is None else f" of {duration(steps.mean_ms)}"
        program = self.meta.get("command")
        of = "" if program is None else f" {str(program)!r:.80}"
        return (
            f"<fastprof.Report{of}: {plural(steps.count, 'step')}{mean}, "
            f"{plural(len(self.functions), 'function')}, {number(self.wall_ms / 1000)} s recorded>"
        )


def _in_steps(view: Snapshot, steps: StepTable, phase: str) -> dict[str, int]:
    """Return the times in ns of the parts of steps; empty: ``view`` has much that is in none."""
    if phase != RUN_PHASES[STEPS] or beyond_steps_ns(view, phase, training_thread(view)):
        return {}
    return {row.name: row.total_ns for row in steps.rows}


def build_report(
    snapshot: Snapshot, *, correct_times: bool = True, phase: str | None = None
) -> Report:
    """Compute every table of a recording.

    Args:
        snapshot: the recording.
        phase: the phase of the run that sections, functions and kernels describe, one of
            ``snapshot.run_phases.RUN_PHASES``; ``"all"``: the whole run; None: measured steps if
            there are any, else the whole run.
        correct_times: subtract the hook's calibrated cost; False keeps the recorded times, as a
            recording without calibration or with an external timer does.

    Raises:
        ValueError: there is no such phase, or it is empty.
    """
    whole = snapshot
    of_run = correct(whole, enabled=correct_times)
    phase = chosen_phase(whole, phase)
    snapshot = view_of(whole, phase)
    correction = correct(snapshot, enabled=correct_times)
    gpu_tables = GpuTables(snapshot)
    threads, rows = functions(snapshot, correction, gpu_tables)
    groups = row_groups(snapshot)
    by_section = [node_groups(t.nodes, groups) for t in snapshot.threads]
    gpu = measured(snapshot)
    kernels = () if gpu is None else kernel_rows(gpu)
    steps = step_table(snapshot, whole, correct_times=correct_times)
    span_ns = steps.wall_ns if phase == RUN_PHASES[STEPS] else None
    span_ns = span_ns or snapshot.duration_ns
    # Waits in other phases are outside of steps.
    counted = steps_in(phase, steps.count, steps.measured) if phase in ("steps", ALL) else 0
    gpu_part = gpu_report(snapshot, gpu_tables, by_section, kernels, counted)
    loaders, stages = loader_rows(snapshot), stage_rows(whole)
    return Report(
        meta=dict(snapshot.meta),
        wall_ms=whole.duration_ns / 1e6,
        sections=section_rows(
            whole,
            snapshot,
            correction,
            groups,
            gpu_tables.by_group(by_section),
            span_ns=span_ns,
            in_steps=_in_steps(snapshot, steps, phase),
        ),
        steps=steps,
        functions=rows,
        threads=threads,
        loaders=loaders,
        overhead=overhead_of(whole, correct_times=correct_times),
        notes=(
            *beyond_notes(snapshot, phase),
            *loader_notes(snapshot, loaders),
            *compared(loaders, {stage.loader for stage in stages}),
            *make_notes(snapshot, gpu_part),
        ),
        snapshot=whole,
        view=snapshot,
        phase=phase,
        phases=phase_rows(whole, of_run.self_ns),
        gpu=gpu_part,
        kernels=kernels,
        memory=memory_report(snapshot),
        correct_times=correct_times,
        worker_functions=worker_tables(snapshot, enabled=correct_times),
        operators=operator_report(snapshot.operators),
        stages=stages,
    )
