"""Limits that several findings share, as data, with their origins.

A limit of one rule is in that rule's file; :func:`fastprof.findings.examine.limits` has all.
``TARGETS`` is the table that ``fastprof targets`` prints.  Shares are fractions of 1.

Where published limits differ (10 or 15 % of data loading, for example), the table here merges them:
the lowest is a note, the highest is critical.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fastprof.report.figures import chosen_percent
from fastprof.report.phase_names import BACKWARD, FORWARD
from fastprof.report.targets import PHASES, STEP_TARGETS, Share

#: A critical finding needs this many measured steps (TraceML's rule).
CRITICAL_STEPS = 20
#: Fewer measured steps are too few to judge.
MIN_STEPS = 5
#: So are fewer samples of a device's health, about one per second.
MIN_SAMPLES = 10
#: Rarer events may be one stall of the machine.
MIN_TIMES = 10


@dataclass(frozen=True, slots=True)
class Limit:
    """The values above which (below, if ``low``) something is a note, a warning, critical.

    ``unit`` is ``%`` for fractions of 1.  ``origin`` names the source of the limit.
    """

    metric: str
    unit: str
    note: float | None
    warning: float | None
    critical: float | None
    origin: str
    low: bool = False

    def grade(self, value: float) -> str | None:
        """Return the severity of a value; None: within the limits."""
        for severity, limit in (
            ("critical", self.critical),
            ("warning", self.warning),
            ("note", self.note),
        ):
            if limit is not None and (value < limit if self.low else value > limit):
                return severity
        return None

    def text(self, severity: str) -> str:
        """Return the limit that a value of this severity exceeded: ``above 15 %``."""
        limit = {"critical": self.critical, "warning": self.warning, "note": self.note}[severity]
        if limit is None:  # a severity lowered because of few steps
            limit = self.warning if self.warning is not None else self.note or 0.0
        return f"{'below' if self.low else 'above'} {amount(limit, self.unit)}"


def amount(value: float, unit: str) -> str:
    """Format a value in its unit: ``15 %``, ``0.5 blocks per SM``."""
    if unit == "%":
        return chosen_percent(value)
    return f"{value:.4g} {unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Usual:
    """A usual span of a share; a share outside of it is only worth a note."""

    metric: str
    share: Share
    origin: str

    @property
    def text(self) -> str:
        """The span: ``30-40 %``."""
        return f"{self.share.text} %"


_MERGED = "fastprof's table of limits"
OWN = "chosen by fastprof"

_ALL = {
    "data-share": Limit(
        "data share of the step", "%", 0.10, 0.15, 0.30,
        f"{_MERGED}, data share (PyTorch's TensorBoard plugin 5 %, TraceML 10 and 20 %, "
        "Accelerate's profiling guide 10 and 30 %)",
    ),
    "gpu-utilization": Limit(
        "GPU utilization", "%", 0.80, 0.70, 0.50,
        f"{_MERGED}, GPU utilization (PyTorch's TensorBoard plugin 50 %, TraceML 30 and 70 %)",
        low=True,
    ),
    # A larger batch saves no more than the idle time.
    "batch-gpu-busy": Limit(
        "GPU utilization for larger batches", "%", None, 0.80, None,
        f"{OWN}: the target of GPU utilization; a busier GPU gains less than a quarter by larger "
        "batches",
        low=True,
    ),
    "gpu-memory-low": Limit(
        "GPU memory used", "%", None, 0.50, None, f"{_MERGED}, GPU memory", low=True
    ),
    "gpu-memory-high": Limit(
        "GPU memory used", "%", 0.95, None, 0.98,
        f"{_MERGED}, GPU memory (PyTorch's TensorBoard plugin 90 %)",
    ),
    "step-cv": Limit(
        "variation of the step time", "%", None, 0.10, 0.25, f"{_MERGED}, step-time variation"
    ),
    "backward-to-forward": Limit(
        "backward over forward", "times", None, 3.0, None, f"{_MERGED}, backward share"
    ),
    "optimizer-share": Limit(
        "optimizer share of the step", "%", 0.10, 0.15, None, f"{_MERGED}, optimizer share"
    ),
    "all-reduce-share": Limit(
        "all-reduce share of backward", "%", None, 0.15, 0.30,
        f"{_MERGED}, all-reduce share (PyTorch's TensorBoard plugin 10 % of the step)",
    ),
    "transfer-share": Limit(
        "host-device transfers' share", "%", None, 0.05, 0.15,
        f"{_MERGED}, transfer share (Accelerate's profiling guide)",
    ),
    "occupancy": Limit(
        "estimated SM occupancy", "%", None, 0.50, None, f"{_MERGED}, SM occupancy", low=True
    ),
    "blocks-per-sm": Limit(
        "blocks per SM", "", None, 1.0, 0.5,
        f"{_MERGED}, blocks per SM (PyTorch's TensorBoard plugin)", low=True,
    ),
    "small-kernels": Limit(
        "share of GPU time in kernels below 100 us", "%", None, 0.50, None,
        f"{_MERGED}, small kernels",
    ),
    # Work that trains nothing and could run elsewhere: the limit for transfers.
    "overhead-share": Limit(
        "share of logging, saving, reading, waiting", "%", None, 0.05, 0.15,
        f"{OWN}: the same as for transfers",
    ),
    "imbalance": Limit(
        "work of the busiest rank over the mean", "%", None, 0.10, 0.20,
        "TraceML's 10 and 20 % for stragglers",
    ),
}  # fmt: skip
LIMITS: Mapping[str, Limit] = _ALL


def line(name: str, severity: str) -> float:
    """Return the limit of :data:`LIMITS` for a severity.

    Raises:
        KeyError: no such limit.
        ValueError: it has none for that severity.
    """
    value: float | None = getattr(LIMITS[name], severity)
    if value is None:
        raise ValueError(f"{name} has no line for {severity}")
    return value


#: Shares above these are a note.
USUAL: Mapping[str, Usual] = {
    phase.sections[0]: Usual(
        f"{phase.sections[0]} share of the step",
        phase.usual,
        f"{_MERGED}, {phase.sections[0]} share",
    )
    for phase in PHASES
    if phase.sections in (FORWARD, BACKWARD)
}


@dataclass(frozen=True, slots=True)
class Target:
    """A row of the targets table."""

    metric: str
    target: str
    too_low: str
    too_high: str


TARGETS: tuple[Target, ...] = (
    Target("GPU utilization", ">80 %", "feed it faster: data loading, larger batches", "fine"),
    Target(
        "GPU memory",
        "85-95 %",
        "raise the batch size",
        "lower the batch size, checkpoint activations",
    ),
    Target(
        "Step time variance",
        "<10 %",
        "fine",
        "look at data loading, dynamic batch sizes, memory fragmentation",
    ),
    Target(
        "Data loading",
        f"{STEP_TARGETS['data'].text} %",
        "fine",
        "more workers, prefetching, less preprocessing",
    ),
    Target(
        "Forward pass",
        f"{STEP_TARGETS['forward'].text} %",
        "check the rest: data, optimizer, logging",
        "mixed precision, fused or flash attention, torch.compile",
    ),
    Target(
        "Backward pass",
        f"{STEP_TARGETS['backward'].text} %",
        "check the rest: data, optimizer, logging",
        "recomputation, gradient synchronization, memory pressure",
    ),
    Target(
        "Optimizer",
        f"{Share(None, STEP_TARGETS['optimizer'].high).text} %",
        "fine",
        "a fused optimizer, or fewer steps of it",
    ),
)
