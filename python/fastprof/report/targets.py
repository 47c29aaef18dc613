"""The ideal shares of a step, which reports show beside the measured shares of its sections.

From the profiling guide that the requirements begin with: forward 35 to 40 %, backward 40 to 45 %,
optimizer 10 to 15 %, data loading and everything else below 10 %.  They describe a dense model
trained on one GPU and are a hint, not a verdict: a healthy run with a frozen backbone or a large
batch has other shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass


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


FORWARD = Target(0.35, 0.40)
BACKWARD = Target(0.40, 0.45)
OPTIMIZER = Target(0.10, 0.15)
#: For data loading, and for the rest outside of the four phases.
REST = Target(None, 0.10)

STEP_TARGETS: Mapping[str, Target] = {
    "forward": FORWARD,
    "forward_pass": FORWARD,
    "backward": BACKWARD,
    "backward_pass": BACKWARD,
    "optimizer": OPTIMIZER,
    "optimizer_step": OPTIMIZER,
    "data": REST,
    "data_loading": REST,
    "(unaccounted)": REST,
}


def target_of(section: str) -> Target | None:
    """Return the target of a section of the step, under either of its names."""
    return STEP_TARGETS.get(section)


def target_text(section: str) -> str:
    """Return the target of a section as a cell of a table; empty without a target."""
    target = target_of(section)
    return "" if target is None else target.text
