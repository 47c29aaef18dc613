"""The ideal shares of a step, which reports show beside the measured shares of its sections.

From the profiling guide that the requirements begin with: forward 35 to 40 %, backward 40 to 45 %,
optimizer 10 to 15 %, data loading and everything else below 10 %.  They describe a dense model
trained on one GPU and are a hint, not a verdict: a healthy run with a frozen backbone or a large
batch has other shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fastprof.report.phase_names import BACKWARD, DATA, FORWARD, OPTIMIZER


@dataclass(frozen=True, slots=True)
class Target:
    """A span of shares, fractions of 1; ``low`` None: only an upper limit."""

    low: float | None
    high: float

    @property
    def text(self) -> str:
        """The span in percent: ``35-40`` or ``<10``."""
        high = f"{100 * self.high:.0f}"
        return f"<{high}" if self.low is None else f"{100 * self.low:.0f}-{high}"


#: The target of each section of the step, under either of its names.
STEP_TARGETS: Mapping[str, Target] = {
    name: target
    for names, target in (
        (FORWARD, Target(0.35, 0.40)),
        (BACKWARD, Target(0.40, 0.45)),
        (OPTIMIZER, Target(0.10, 0.15)),
        ((*DATA, "(unaccounted)"), Target(None, 0.10)),
    )
    for name in names
}


def target_text(section: str) -> str:
    """Return the target of a section as a cell of a table; empty without a target."""
    target = STEP_TARGETS.get(section)
    return "" if target is None else target.text
