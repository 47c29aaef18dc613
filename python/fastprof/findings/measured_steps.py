"""Measurements of steps, sections and the program's processes.

Times are in ms per *span*: per step if steps were measured, else over the whole recording.  Shares
are of the span.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from fastprof.findings.cpu_waits import CpuWaits, cpu_waits
from fastprof.lazy import Lazy
from fastprof.report.framework import framework_of
from fastprof.report.functions import split_by_section
from fastprof.report.model import Report
from fastprof.report.phase_names import PHASES
from fastprof.report.rows import OWN_COST, UNACCOUNTED, StepTable
from fastprof.report.run_phases import steps_in
from fastprof.report.step_costs import NO_SECTION
from fastprof.report.step_table import costs_of_steps
from fastprof.report.steps import StepSeriesView

#: Nanoseconds.
MS = 1e6

#: Involuntary context switches per second; an idle machine has a few.
BUSY_SWITCHES = 20.0


class StepFacts:
    """A report from the view of the rules; computes every property at most once."""

    def __init__(self, report: Report) -> None:
        self.report = report
        steps = report.steps
        #: Steps that the figures cover, 0 if none was measured.
        self.steps = steps.measured if steps.wall_ns else 0
        #: Steps that functions, sections and GPU work cover: all of the run in a recording without
        #: phases.
        self.counted = steps_in(report.phase, steps.count, self.steps)
        #: A step's mean wall time, or the recording's.
        self.span_ms = (report.shown_steps.mean_ms or 0.0) if self.steps else report.wall_ms
        self.per = "step" if self.steps else "recording"

    def share(self, ms: float) -> float:
        """Return a time as a fraction of the span."""
        return ms / self.span_ms if self.span_ms > 0 else 0.0

    @Lazy
    def rows(self) -> Mapping[str, float]:
        """The rows of the step table without fastprof's: name -> ms per step."""
        steps = self.report.shown_steps
        return {row.name: row.mean_ms for row in steps.rows if row.name != OWN_COST}

    @Lazy
    def own_costs(self) -> Mapping[str, float]:
        """fastprof's cost by row of the step table, which leaves it out: name -> ms per step."""
        if all(row.name != OWN_COST for row in self.report.shown_steps.rows):
            return {}
        if self.report.plain is not None:
            return {
                UNACCOUNTED: sum(r.mean_ms for r in self.report.plain.rows if r.name == OWN_COST)
            }
        keys = self.report.snapshot.keys
        out: dict[str, float] = {}
        for key, ns in costs_of_steps(self.report.snapshot).items():
            name = UNACCOUNTED if key == NO_SECTION else keys[key].name
            out[name] = out.get(name, 0.0) + ns / MS / self.steps
        return out

    @property
    def _plain(self) -> StepTable | None:
        """The steps whose sections ``report.sections`` shows, if those are plain ones."""
        return self.report.plain if self.report.phase == "steps" else None

    @Lazy
    def nested(self) -> Mapping[str, float]:
        """Sections of the whole recording: name -> ms per step, inside others or not."""
        plain = self._plain
        whole_ms = None if plain is None else plain.mean_ms
        if whole_ms is not None:  # rows of steps with functions and without
            return {s.name: s.share * whole_ms for s in self.report.sections if s.share is not None}
        count = self.counted or 1
        return {s.name: s.total_ms / count for s in self.report.sections if s.total_ms is not None}

    def phase(self, name: str) -> float | None:
        """Return the ms per span of a phase; None if none of its sections ran.

        A phase at the top level of steps counts there, else inside other sections.
        """
        names = PHASES[name]
        at_top = [ms for row, ms in self.rows.items() if row in names]
        if at_top:
            return sum(at_top)
        inside = [ms for row, ms in self.nested.items() if row in names]
        return sum(inside) if inside and self.report.steps.count else None

    def run_phase(self, name: str) -> tuple[float, float]:
        """Return the ms per step of a phase of the run outside of steps, and its entries."""
        row = next((row for row in self.report.phases if row.name == name), None)
        if row is None or not self.steps or self.report.phase == name:
            return 0.0, 0.0
        return row.wall_ms / self.report.steps.count, row.entries / self.report.steps.count

    def section_count(self, names: frozenset[str]) -> int:
        """Return how often sections of these names were entered."""
        return sum(s.count for s in self.report.sections if s.name in names)

    def section_rate(self, names: frozenset[str]) -> float:
        """Return the same per step."""
        steps = self.counted if self._plain is None else self._plain.measured
        return self.section_count(names) / max(1, steps)

    @Lazy
    def split(self) -> Mapping[str, float]:
        """The exclusive split of a step: kind -> ms per step; empty if unknown."""
        rows = getattr(self.report.shown_steps, "split", ())
        return {row.name: row.mean_ms for row in rows}

    @Lazy
    def cpu_waits(self) -> CpuWaits:
        """The training thread's wait for a CPU: it was ready, and had none."""
        rows = {row.name: row.mean_ms for row in self.report.shown_steps.rows}
        waits = self.split_by_section("cpu_wait")
        wait_ms = self.split.get("cpu_wait", 0.0)
        series = sections = self.own_series
        if self.report.stages:  # most steps without a wait are of the stage with short ones
            sections = replace(series, names={})
        elif not series.names:  # most plain steps had no automatic sections
            sections = self._outside_operators(self.report.steps.series)
        of_steps = self.report.shown_steps.measured
        return cpu_waits(rows, wait_ms, waits, series, sections, self.steps, of_steps)

    def split_by_section(self, kind: str) -> Mapping[str, float]:
        """Return the ms per step of a kind of the split by outermost section, as far as known."""
        found = split_by_section(self.report.snapshot, kind)
        recorded = sum(row.mean_ms for row in self.report.steps.split if row.name == kind)
        if self.report.plain is None or not recorded:
            return found
        # The places are those of steps with functions, and the sum is the one that is shown.
        part = self.split.get(kind, 0.0) / recorded
        return {name: ms * part for name, ms in found.items()}

    @Lazy
    def own_series(self) -> StepSeriesView:
        """The single steps, without those that torch.profiler slowed down."""
        return self._outside_operators(self.report.shown_steps.series)

    def _outside_operators(self, series: StepSeriesView) -> StepSeriesView:
        operators = self.report.operators
        windows = operators.windows if operators is not None else ()
        kept = [
            row
            for row, number in enumerate(series.numbers)
            if not any(low <= number <= high for low, high in windows)
        ]
        return series.only(kept)

    @Lazy
    def worst_ms(self) -> float:
        """The slowest step's contribution to the mean step, beyond the median step."""
        wall = self.report.shown_steps.series.wall_ms
        return (max(wall) - median(wall)) / len(wall) if wall else 0.0

    @Lazy
    def disturbed(self) -> bool:
        """Whether other programs repeatedly took the CPU from the training thread.

        If so, the times of a few steps are chance: a time slice is some milliseconds.
        """
        series = self.report.shown_steps.series
        wall_s = sum(series.wall_ms) / 1e3
        return bool(series.switches) and sum(series.switches) > BUSY_SWITCHES * wall_s

    @property
    def ranks(self) -> int:
        """Processes of the job; 1 if it has no others, or the number is unknown."""
        told = self.report.meta.get("world_size")
        return told if isinstance(told, int) and told > 1 else 1

    @Lazy
    def framework(self) -> str:
        """The trainer in use: torch, lightning, transformers or accelerate."""
        return framework_of(self.report)
