"""Phases of the run: set-up, warm-up, measured steps, validation, checkpoints, the rest.

Every node of a tree, every section's figures and every moment of the run belong to one.
A step's cost is the time of the measured steps; reports name the other phases beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastprof.snapshot.codec import Count, Numbered, Row

#: Names by number, as ``Recorder.set_phase`` takes it.  ``steps`` is measured steps, and all
#: of a recording that knows no phases; ``outside`` is between epochs and after the loop;
#: ``unprofiled`` are the few steps that were made without the function hook.
RUN_PHASES = ("steps", "setup", "warmup", "validation", "checkpoint", "outside", "unprofiled")

STEPS = RUN_PHASES.index("steps")


@dataclass(frozen=True, slots=True)
class PhaseTime(Row):
    """One phase of the run: recorded wall time in ns, and how often it began."""

    name: Annotated[str, Numbered(*RUN_PHASES)]
    wall_ns: Count
    entries: Count


def phase_numbers(names: Sequence[str]) -> frozenset[int]:
    """Return the numbers of phases.

    Raises:
        ValueError: an unknown name; the message lists the known ones.
    """
    for name in names:
        if name not in RUN_PHASES:
            raise ValueError(f"no phase of the run is called {name!r:.80}; {_known()}")
    return frozenset(RUN_PHASES.index(name) for name in names)


def _known() -> str:
    return "there are: " + ", ".join(RUN_PHASES)
