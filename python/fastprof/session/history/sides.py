"""The two sides of a change, as sums of their segments."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from fastprof.clock import time
from fastprof.ranks.row import program_of
from fastprof.report.figures import step_number
from fastprof.snapshot import Key
from fastprof.snapshot.history import Contexts, Segment, SegmentSteps, joined
from fastprof.snapshot.run_phases import STEPS

#: A part of the difference that makes a cause.
CAUSE = 0.3
#: The part of a step in no top-level section.
REST = "(in no section)"
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A change: segments before it, and since then; of a drift at its two ends."""

    drift: bool
    first: int  # the first step since then; of long steps the first long one
    at_ns: int
    before: tuple[Segment, ...]
    since: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """Sums of one side of a change."""

    whole: Segment
    steps: SegmentSteps

    def per_step(self, ns: int) -> float:
        """Return ns over the steps as ms per step."""
        return ns / max(1, self.steps.count) / _NS_PER_MS

    @property
    def step_ms(self) -> float:
        return self.per_step(self.steps.sum_ns)


def side_of(parts: Sequence[Segment]) -> Side:
    """Return the sums of segments; of steps without functions, if these are most."""
    whole = reduce(joined, parts)
    return Side(whole, whole.plain if whole.plain.count >= whole.full.count else whole.full)


def functions(
    segment: Segment,
    contexts: Contexts,
    keys: Sequence[Key],
    times: int,
    is_meant: Callable[[int, str], bool],
) -> dict[tuple[str, str, int], float]:
    """Return the own time of the program's functions, by place, in ms.

    Args:
        segment: what was spent.
        contexts: those of the segments.
        keys: the keys of contexts.
        times: the number of steps or passes; times are of one.
        is_meant: returns whether a context counts, by its phase of the run and its section.
    """
    n = len(contexts)
    ns = [0] * n
    for at, own in zip(segment.spent.context, segment.spent.self_ns, strict=True):
        ns[at] = own
    inside: list[str] = []
    for above, key in zip(contexts.parent, contexts.key, strict=True):
        name = inside[above] if above >= 0 else REST
        inside.append(keys[key].name if keys[key].kind == "section" and name == REST else name)
    outside = {i + 1 for i in range(n) if not is_meant(contexts.phase[i], inside[i])}
    found = program_of(
        (-1, *(above + 1 for above in contexts.parent)),
        (len(keys), *contexts.key),
        (0, *ns),
        (*keys, Key("root", "", 0, "", "")),
        outside,
        times,
    )
    return {place: function.ms for place, function in found.items()}


def in_section(name: str) -> Callable[[int, str], bool]:
    """Return what chooses the contexts of a section of steps."""
    return lambda phase, section: phase == STEPS and section == name


def place_of(
    before: dict[tuple[str, str, int], float],
    since: dict[tuple[str, str, int], float],
    wanted_ms: float,
    parts: tuple[float, float] = (CAUSE, math.inf),
) -> str:
    """Return the function that has most of a difference, as `` in name (file:line)``, or nothing.

    Args:
        before: times of functions before the change.
        since: and since then.
        wanted_ms: the difference.
        parts: the function's difference is at least and at most this part of it.
    """
    differences = {
        place: since.get(place, 0.0) - before.get(place, 0.0) for place in before | since
    }
    if not differences:
        return ""
    place = max(differences, key=lambda place: differences[place] * wanted_ms)
    if not parts[0] <= differences[place] / wanted_ms <= parts[1]:
        return ""
    name, file, line = place
    return f" in {name} ({os.path.basename(file)}:{line})"


def since_text(first: int, at_ns: int, began_unix_ms: int) -> str:
    """Return the beginning of each sentence: ``since step 12,401 (14:03)``."""
    at = time.strftime("%H:%M", time.localtime(began_unix_ms / 1000 + at_ns / 1e9))
    return f"since step {step_number(first + 1)} ({at})"


def end_text(since: Sequence[Segment]) -> str:
    """Return by which step a drift has come so far."""
    return f"by step {step_number(since[-1].first + since[-1].steps)}"
