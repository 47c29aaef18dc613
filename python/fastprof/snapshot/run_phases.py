"""Phases of the run: set-up, warm-up, measured steps, validation, checkpoints, the rest.

Every node of a tree, every section's figures and every moment of the run belong to one.  A step's
cost is the time of the measured steps; reports list the other phases separately.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastprof.snapshot.codec import Count, Row
from fastprof.snapshot.kinds import Numbered

#: Names by number, as in ``Recorder.set_phase``.  ``steps`` is measured steps, and everything in a
#: recording without phases; ``outside`` is between epochs and after the loop; ``unprofiled`` is the
#: few steps without the function hook.  ``unhooked`` and ``windows`` are the time before the first
#: step without it and with it, after a full look (:mod:`fastprof.session.time_windows`).
#: ``compile`` is the time in which torch.compile or jax.jit compiles, wherever that happens.
RUN_PHASES = (
    "steps", "setup", "warmup", "validation", "checkpoint", "outside", "unprofiled", "unhooked",
    "windows", "compile",
)  # fmt: skip

STEPS = RUN_PHASES.index("steps")
#: What interrupts the steps of a loop and belongs to it.
EVALUATING = ("validation", "checkpoint")


@dataclass(frozen=True, slots=True)
class PhaseTime(Row):
    """One phase of the run: recorded wall time in ns, and the number of its entries."""

    name: Annotated[str, Numbered(*RUN_PHASES)]
    wall_ns: Count
    entries: Count


def phase_numbers(names: Sequence[str]) -> frozenset[int]:
    """Return the numbers of phases.

    Raises:
        ValueError: an unknown name; the message lists the known ones.
    """
    known = ", ".join(RUN_PHASES)
    for name in names:
        if name not in RUN_PHASES:
            raise ValueError(f"no phase of the run is called {name!r:.80}; there are: {known}")
    return frozenset(RUN_PHASES.index(name) for name in names)


#: Facts about fastprof's own time, and the phases of which they are: those in which no step runs.
OWN_OF = {
    "own_elsewhere_ns": phase_numbers((*EVALUATING, "setup", "outside", "compile")),
    "own_evaluating_ns": phase_numbers(EVALUATING),
}
