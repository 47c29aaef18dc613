"""The rows of a report's tables.

Times are milliseconds, shares are fractions of 1, and an unknown value is None, never 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastprof.report.in_run import UnprofiledStep
from fastprof.report.model_gpu import GpuUse, HasGpu
from fastprof.report.outliers import Outlier
from fastprof.report.steps import SplitRow, StepSeriesView
from fastprof.snapshot import Key

#: Name of a step's time outside of its top-level sections.
UNACCOUNTED = "(unaccounted)"
#: The row of fastprof's cost in a step.
OWN_COST = "(fastprof)"


@dataclass(frozen=True, slots=True)
class SectionRow(HasGpu):
    """One section name, over all threads.

    ``total_ms`` is the time during which the section was open (recursion counted once),
    with the hook's own cost subtracted; ``raw_total_ms`` is the same as measured.
    ``self_ms`` leaves out the sections nested in it.  ``mean_ms`` to ``p99_ms`` describe
    single entries, corrected in the same proportion as the total.  ``share`` is of the recorded
    wall time; with several threads the shares may add up to more than 1.  A value without a sample
    is None.  ``gpu`` is the GPU work that the section launched, None without a GPU layer;
    ``gpu_ms``, ``kernels``, ``blocked_ms`` are its main figures.
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
    """A top-level section inside the measured steps, ``(unaccounted)`` or ``(fastprof)``.

    fastprof's estimated cost is subtracted from the others, and is the row ``(fastprof)``.
    ``mean_ms`` is per measured step, whether the section ran in it or not; ``steps`` counts the
    steps in which it ran (None for the last two).
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
    """Steps of the training thread; wall times as measured (nothing subtracted).

    ``count`` steps ended; all but the first ``skipped`` and ``apart`` later ones, which ran without
    the function hook, were measured.  ``rows`` add up to ``wall_ns`` exactly, and so does
    ``split``, the kinds of time.  ``split_missing`` names the missing kinds and the reason.  ``cv``
    is standard deviation over mean.
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
        """Number of steps that the figures cover."""
        return max(0, self.count - self.skipped - self.apart)

    @property
    def wall_ms(self) -> float | None:
        """Wall time of all measured steps in ms."""
        return None if self.wall_ns is None else self.wall_ns / 1e6


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """A caller of a function, or a function it calls, with the time of the calls."""

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

    ``calls`` are entries, of which ``primitive_calls`` were not inside another activation of the
    function; ``resumes`` are continuations of a generator or coroutine.  ``share`` is ``self_ms``
    over the self time of all functions.  ``kind`` is ``python``, ``c``, ``type`` (a constructor)
    or, for a section's own code in :meth:`Report.functions_in`, ``section``.  ``gpu`` is the GPU
    work that it launched, None without a GPU layer.
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


def key_of(row: FunctionRow) -> Key:
    return Key(row.kind, row.file, row.line, row.name, row.qualname)


@dataclass(frozen=True, slots=True)
class ThreadTable:
    """The functions of one thread; ``ident`` 0: all ended threads together."""

    ident: int
    name: str
    ended: bool
    total_ms: float
    raw_total_ms: float
    functions: Sequence[FunctionRow]


@dataclass(frozen=True, slots=True)
class Overhead:
    """The profiler's own cost.

    ``share`` is its part of the time of all steps after the warm-up, with the operator windows
    between them (``of_steps``), or of wall time in a recording without steps; ``most_share`` is its
    bound.  None: unknown.  ``estimated_ms`` is the cost of the whole run, all parts together.
    ``functions_ms`` is estimated from call counts and the calibrated hook, ``bytecode_ms`` is the
    upper limit of the time that slower bytecode under the hook added (Python 3.10 and 3.11), of
    which half counts if the run could not measure it.  ``sections_ms`` is the time of sections,
    steps, loaders and the hooks on trainers: measured, plus an estimate of the rest.
    ``windows_ms`` is the time of operator windows.  ``corrected`` says whether ``functions_ms`` was
    subtracted from functions and sections; ``clamped_ms`` is the part that could not be.
    ``after_look`` is the same share of the steps after the first ``look_steps``, all of which have
    functions; None: there are none, or the run has no such steps.
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
    most_share: float | None = None
    of_steps: bool = False
    after_look: float | None = None
    look_steps: int = 0


def call_counts(row: FunctionRow) -> tuple[int, int]:
    """Return all calls of a function, and those not made by itself.

    fastprof's functions are one row; their calls of each other are no recursion, and left out.
    """
    return (row.primitive_calls if row.qualname == OWN_COST else row.calls), row.primitive_calls
