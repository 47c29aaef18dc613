"""The one table of shares of a step's phases.

The targets are from the profiling guide that the requirements begin with. They describe a dense
model trained on one GPU and are a hint, not a verdict: a healthy run with a frozen backbone or a
large batch has other shares. So a share is called unusual only outside of a wider span.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fastprof.report.phase_names import BACKWARD, DATA, FORWARD, OPTIMIZER


@dataclass(frozen=True, slots=True)
class Share:
    """A span of shares, fractions of 1; ``low`` None: only an upper limit."""

    low: float | None
    high: float

    @property
    def text(self) -> str:
        """The span in percent: ``35-40`` or ``<10``."""
        high = f"{100 * self.high:.0f}"
        return f"<{high}" if self.low is None else f"{100 * self.low:.0f}-{high}"


@dataclass(frozen=True, slots=True)
class PhaseShares:
    """A phase of a step: its sections, the target of its share, and the usual span."""

    title: str
    sections: tuple[str, str]
    target: Share
    usual: Share


PHASES = (
    PhaseShares("Data loading", DATA, Share(None, 0.10), Share(0.05, 0.10)),
    PhaseShares("Forward pass", FORWARD, Share(0.35, 0.40), Share(0.30, 0.40)),
    PhaseShares("Backward pass", BACKWARD, Share(0.40, 0.45), Share(0.40, 0.50)),
    PhaseShares("Optimizer step", OPTIMIZER, Share(0.10, 0.15), Share(0.05, 0.10)),
)

#: The target of each section of the step, under either of its names.
STEP_TARGETS: Mapping[str, Share] = {
    **{name: phase.target for phase in PHASES for name in phase.sections},
    "(unaccounted)": Share(None, 0.10),
}


def target_text(section: str) -> str:
    """Return the target of a section as a cell of a table; empty without a target."""
    target = STEP_TARGETS.get(section)
    return "" if target is None else target.text
