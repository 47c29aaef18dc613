"""One saved run for a comparison: figures per step, and its steps one by one."""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from fastprof.comparison.stats.significance import Recording, Series
from fastprof.comparison.stats.transient import transient
from fastprof.export.pstats_ import stats_dict
from fastprof.lazy import Lazy
from fastprof.names import file_name
from fastprof.read.load import load
from fastprof.report.build import in_phase
from fastprof.report.from_stats import report_from_stats
from fastprof.report.loaders import any_workers
from fastprof.report.model import Report
from fastprof.report.run_phases import ALL, steps_in
from fastprof.report.step_costs import NO_SECTION
from fastprof.report.step_table import costs_are_limit, costs_of_steps
from fastprof.report.steps import section_series, sections_as_recorded
from fastprof.report.waits import Functions, without_waits
from fastprof.snapshot import Snapshot

#: An argument of comparisons: a report, or the path of a saved run.
Source = Report | str | os.PathLike[str]

#: Losing the CPU costs at most about this long before the thread runs again.
_SLICE_MS = 4.0
#: A machine counts as busy if that cost more than this part of the steps: other programs then slow
#: a program down even while it has the CPU, by sharing caches and cores.
_BUSY = 0.1

#: Why several files of a side are no several runs.
RANKS = "several files are ranks of one job, which is one run"

STEP = "step"
CPU = "step (CPU)"


@dataclass(frozen=True)
class Run:
    """A report and its name."""

    label: str
    report: Report
    #: The file's path; empty for a report.
    path: str = ""
    #: Times and counts are of the whole run, because another run has no measured steps.
    of_run: bool = False

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that another run does not have; empty: unknown."""
        meta = self.report.meta
        facts = tuple(meta.get(name) for name in ("started_unix_ns", "pid", "hostname", "rank"))
        return facts if facts[0] is not None and facts[1] is not None else ()

    @property
    def records_functions(self) -> bool:
        return self.report.meta.get("functions") is not False

    @property
    def job(self) -> object:
        """The distributed job of which this run is a rank; None: none, or unknown."""
        meta = self.report.meta
        size = meta.get("world_size")
        return meta.get("job") if isinstance(size, int) and size > 1 else None

    @Lazy
    def recording_ms(self) -> Mapping[str, float]:
        """What recording costs per measured step, under the names of :attr:`series`."""
        snapshot, steps = self.report.snapshot, self.report.steps.measured
        costs = costs_of_steps(snapshot) if steps and self.report.plain is None else {}
        named = {
            f"section {snapshot.keys[key].name}": ns / steps / 1e6
            for key, ns in costs.items()
            if key != NO_SECTION
        }
        whole = sum(costs.values()) / steps / 1e6 if costs else 0.0
        return {**named, STEP: whole, CPU: whole}

    @property
    def recording_at_most(self) -> bool:
        """Whether :attr:`recording_ms` is the most that recording may cost."""
        return costs_are_limit(self.report.snapshot)

    @property
    def started(self) -> str:
        """Start of the run, by the clock of this machine; empty if unknown."""
        ns = self.report.meta.get("started_unix_ns")
        if not isinstance(ns, int) or isinstance(ns, bool) or not 0 < ns < 1 << 62:
            return ""
        try:
            return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ns // 10**9))
        except (OverflowError, ValueError, OSError):
            return ""

    @property
    def script(self) -> str:
        """File name of the script that started the run; empty if unknown."""
        words = str(self.report.meta.get("command") or "").split()
        name = file_name(words[0]) if words else ""
        return name if name.endswith(".py") else ""

    @property
    def steps(self) -> int:
        """Steps that functions, sections and kernels cover: the divisor of their totals."""
        steps = self.report.steps
        return steps_in(self.report.phase, steps.count, steps.measured)

    @Lazy
    def left_out(self) -> int | None:
        """Steps at the beginning that had not settled; None: the run never settles."""
        return transient(self._columns[STEP]) if STEP in self._columns else 0

    @Lazy
    def _columns(self) -> Mapping[str, Sequence[float]]:
        snapshot, steps = self.report.snapshot, self.report.shown_snapshot_steps
        series = steps.series
        # Without memory for a series there are the steps' durations.
        wall = series.wall_ns or steps.recent_ns
        if not wall:
            return {}
        columns: dict[str, Sequence[float]] = {STEP: _ms(wall)}
        if series.cpu_ns:
            columns[CPU] = _ms(series.cpu_ns)
        if self._sections_elsewhere:
            return columns
        return columns | self._section_columns(replace(snapshot, steps=steps))

    def _section_columns(self, snapshot: Snapshot) -> dict[str, Sequence[float]]:
        columns: dict[str, Sequence[float]] = {
            f"section {name}": _ms(column) for name, column in section_series(snapshot).items()
        }
        if snapshot.steps is self.report.snapshot.steps:
            for name, part in self._program_parts.items():
                if name in columns:
                    columns[name] = [ms * part for ms in columns[name]]
        return columns

    @property
    def _sections_elsewhere(self) -> bool:
        """Whether sections were recorded in the steps with functions only."""
        return self.report.plain is not None and not self.report.plain.series.names

    @property
    def _program_parts(self) -> Mapping[str, float]:
        """The part of each section's time that is not fastprof's, as in the report's table.

        Single steps are corrected in proportion: which step paid how much is unknown.
        """
        recorded = sections_as_recorded(self.report.snapshot)
        return {
            f"section {row.name}": row.total_ns / recorded[row.name]
            for row in self.report.steps.rows
            if recorded.get(row.name)
        }

    @property
    def step_ms(self) -> tuple[float, ...]:
        """Duration of each measured step that was kept, settled or not."""
        return tuple(self._columns.get(STEP, ()))

    @Lazy
    def series(self) -> Mapping[str, Series]:
        """ms per settled step: ``step``, ``step (CPU)``, and ``section `` with each name."""
        cut, of = self.left_out or 0, self.report.steps.count
        found = {name: Series(values[cut:], cut, of) for name, values in self._columns.items()}
        if self._sections_elsewhere and found:
            plain, recorded = self.report.shown_snapshot_steps.series, self.report.snapshot.steps
            first = plain.numbers()[cut] if cut < len(plain) else sys.maxsize
            kept = [number >= first for number in recorded.series.numbers()]
            for name, column in self._section_columns(self.report.snapshot).items():
                found[name] = Series([*compress(column, kept)], kept.count(False), of)
        return found

    @Lazy
    def interrupted(self) -> float | None:
        """Upper limit of the part of the steps' time that other programs took, or None.

        Based on involuntary context switches, each of which costs up to a time slice, and limited
        to the time in which the thread waited for a CPU, or if that is unknown, was not on one: a
        program that waits for its disk is switched off the CPU, too.  The program's other threads
        and its workers compete for the CPU as well: their part is left out, by the CPU time that
        the program used and that it left to others.
        """
        series = self.report.shown_snapshot_steps.series
        wall = sum(series.wall_ns) / 1e6
        if not series.switches or not wall:
            return None
        lost = sum(series.switches) * _SLICE_MS
        if series.cpu_ns:
            lost = min(lost, max(0.0, wall - sum(series.cpu_ns) / 1e6))
        for row in self.report.shown_steps.split:
            if row.name == "cpu_wait" and row.share is not None:
                lost = min(lost, row.share * wall)
        others = self._others
        return None if others is None else lost / wall * others

    @property
    def _others(self) -> float | None:
        """The part of the competition for the training thread's CPU that is not the program's."""
        meta, series = self.report.meta, self.report.shown_snapshot_steps.series
        used, cpus = meta.get("process_cpu_ns"), meta.get("cpus")
        duration = self.report.snapshot.duration_ns
        workers = any_workers(self.report.loaders)
        known = isinstance(used, int) and isinstance(cpus, int) and duration > 0 and series.cpu_ns
        if not known:
            return None if workers else 1.0
        own = float(used or 0) / duration
        beside = max(0.0, own - sum(series.cpu_ns) / sum(series.wall_ns))
        free = max(0.0, float(cpus or 0) - own)
        return free / (free + beside) if free + beside > 0 else 1.0

    @property
    def lost_ms(self) -> float:
        """The same in ms per step, 0 if unknown."""
        wall = self.report.shown_snapshot_steps.series.wall_ns
        return (self.interrupted or 0.0) * sum(wall) / 1e6 / len(wall) if wall else 0.0

    @property
    def busy(self) -> bool:
        """Whether other programs took enough of the machine to affect the steps."""
        return (self.interrupted or 0.0) > _BUSY

    @Lazy
    def without_waits(self) -> Functions:
        """The functions of all threads, with waits of the training thread only."""
        return without_waits(self.report)

    @property
    def samples_per_step(self) -> float | None:
        """Samples per step that this process trains on, if its loaders tell."""
        steps = self.report.steps.count
        if not steps:
            return None
        total = 0
        for loader in self.report.loaders:
            if loader.split != "train" or not loader.batches:
                continue
            if loader.workers is None or loader.workers.batch_size is None:
                return None
            total += loader.batches * loader.workers.batch_size
        return total / steps if total else None

    @property
    def memory(self) -> tuple[int, int | None] | None:
        """Peak of reserved GPU memory and its size in bytes, or None."""
        found = self.report.memory
        return None if found is None else (found.peak_reserved, found.total_bytes)

    @property
    def gpu_util(self) -> float | None:
        """Part of the time in which the GPUs were busy, or None."""
        return None if self.report.gpu is None else self.report.gpu.utilization


def ranks_of_one_job(*sides: Sequence[Run]) -> bool:
    """Return whether several files of a side are ranks of one job."""
    jobs = [[run.job for run in side] for side in sides]
    return any(None not in of and len(set(of)) < len(of) for of in jobs)


def recording_ms(side: Sequence[Run], names: Iterable[str]) -> float:
    """Return what recording costs per step in a row of :attr:`Run.series`: the mean of a side."""
    named = [next((n for n in names if n in run.recording_ms), "") for run in side]
    return sum(r.recording_ms.get(n, 0.0) for r, n in zip(side, named, strict=True)) / len(side)


def recording(before: Sequence[Run], after: Sequence[Run], names: Iterable[str]) -> Recording:
    """Return what recording costs in a row of :attr:`Run.series` on each side."""
    names = tuple(names)
    most = [any(run.recording_at_most for run in side) for side in (before, after)]
    return Recording((recording_ms(before, names), recording_ms(after, names)), (most[0], most[1]))


def _ms(column: Sequence[int]) -> list[float]:
    return [ns / 1e6 for ns in column]


def open_run(source: Source) -> Run:
    """Return the run of ``source``.

    Raises:
        TypeError: neither a report nor a path.
        LoadError: (a ValueError) the file is not a saved run.
        OSError: it cannot be read.
    """
    if isinstance(source, Report):
        return Run("report", source)
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        return Run(os.path.basename(path), load(source), os.path.abspath(path))
    raise TypeError(f"{source!r:.80} is neither a Report nor the path of a saved run")


def whole(run: Run) -> Run:
    """Return the run with the functions, sections and kernels of all its phases."""
    report = run.report
    return run if report.phase == ALL else replace(run, report=in_phase(report, ALL))


def as_pstats_sees_it(run: Run) -> Run:
    """Return the run with the functions that its ``.stats`` file would have."""
    if not run.report.has_tree:
        return run
    stats = stats_dict(run.report.snapshot, correct_times=run.report.overhead.corrected)
    functions = report_from_stats(stats).functions
    return replace(run, report=replace(run.report, functions=functions, threads=()))
