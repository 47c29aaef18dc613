"""The rows of a report's tables.

Times are milliseconds, shares are fractions of 1, and what is not known is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fastprof.report.in_run import UnprofiledStep
from fastprof.report.model_gpu import GpuUse, HasGpu
from fastprof.report.outliers import Outlier
from fastprof.report.steps import SplitRow, StepSeriesView

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
    ``sections_ms`` is what sections, steps, loaders and the hooks on trainers took: what was
    timed, and an estimate of what was not.  ``windows_ms`` is what operator windows took.
    ``corrected`` says whether ``functions_ms`` was subtracted from functions and sections;
    ``clamped_ms`` is what of it could not be.
    ``steps_share`` is the part of the measured steps' time that the profiler took in them at
    most (operator windows are in no step), ``least_steps_share`` at least; None where none were
    measured.  ``own_step_ms`` is the part that was timed of ``sections_ms`` in one measured step:
    most of it is in no section.
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
