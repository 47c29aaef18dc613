"""Finds since when passes of validation, or checkpoints, take longer: no step contains them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from fastprof.comparison.stats.changepoint import change_in
from fastprof.report.figures import duration, percent
from fastprof.session.history.sides import end_text, functions, place_of, since_text
from fastprof.snapshot import Key
from fastprof.snapshot.history import Contexts, Segment, joined
from fastprof.snapshot.run_phases import RUN_PHASES

#: Shorter passes are none that anyone waits for, in ns.
_LEAST_NS = 50_000_000
_KEPT, _FEWEST_DRIFT = 64, 20
#: A function is named with this part of a change: few passes may have been recorded with functions,
#: so its difference may be many times the change.
_MOST_OF = (0.5, 1.5)
_NAMES = {"validation": "a validation takes", "checkpoint": "a checkpoint takes"}


@dataclass(frozen=True, slots=True)
class Lasting:
    """A change: the time of a pass before it and since then, and the passes' segments."""

    phase: str
    drift: bool
    first: int  # the step after which the first such pass was
    at_ns: int
    before_ns: float
    since_ns: float
    before: tuple[Segment, ...]
    since: tuple[Segment, ...]


class PassWatcher:
    """Watches the passes of one phase of the run."""

    def __init__(self, phase: str) -> None:
        self._phase = phase
        self._number = RUN_PHASES.index(phase)
        #: Passes so far: the logarithm of their mean time, and their segments as one.
        self._values: list[float] = []
        self._segments: list[Segment] = []
        #: The segments of the last passes, which may go on.
        self._open: Segment | None = None
        self._stage = 0

    def add(self, segment: Segment, stage: int) -> Lasting | None:
        """Add a segment of the run's current stage; return a change."""
        if stage != self._stage:
            self._values, self._segments, self._open, self._stage = [], [], None, stage
        ns, begun = self._of(segment)
        found = None
        if self._open is not None and (begun or not ns):
            found = self._end(self._open)
            self._open = None
        if begun:
            self._open = segment
        elif ns and self._open is not None:
            self._open = joined(self._open, segment)
        return found

    def _of(self, segment: Segment) -> tuple[int, int]:
        """Return the time of passes, and the number of those that began."""
        ns = segment.phases_ns[self._number] if self._number < len(segment.phases_ns) else 0
        begun = 0 if segment.passes is None else getattr(segment.passes, self._phase)
        return ns, begun

    def _end(self, passes: Segment) -> Lasting | None:
        ns, begun = self._of(passes)
        if ns < begun * _LEAST_NS:
            return None
        self._values = [*self._values, math.log(ns / begun)][-_KEPT:]
        self._segments = [*self._segments, passes][-_KEPT:]
        found = change_in(self._values, _FEWEST_DRIFT)
        if found is None:
            return None
        known = self._segments
        end, start = (len(known) // 3, len(known) * 2 // 3) if found.drift else (found.at, found.at)
        before, since = known[:end], known[start:]
        del self._values[:start], self._segments[:start]
        first = before[0] if found.drift else since[0]
        return Lasting(
            self._phase,
            found.drift,
            first.first,
            first.start_ns,
            math.exp(found.before),
            math.exp(found.after),
            tuple(before),
            tuple(since),
        )


def lasting_sentence(
    lasting: Lasting, contexts: Contexts, keys: Sequence[Key], began_unix_ms: int
) -> str:
    """Return a change and the function that has most of it."""
    before_ms, since_ms = lasting.before_ns / 1e6, lasting.since_ns / 1e6
    grown = since_ms / before_ms - 1
    word = "longer" if grown > 0 else "shorter"
    number = RUN_PHASES.index(lasting.phase)
    found = []
    for parts in (lasting.before, lasting.since):
        whole = reduce(joined, parts)
        times = getattr(whole.passes, lasting.phase) if whole.passes else 1
        found.append(functions(whole, contexts, keys, times, lambda phase, _: phase == number))
    where = place_of(found[0], found[1], since_ms - before_ms, _MOST_OF)
    size = f"{percent(abs(grown))} %"
    what = f"ever {word}, {size} {end_text(lasting.since)}" if lasting.drift else f"{size} {word}"
    return (
        f"{since_text(lasting.first, lasting.at_ns, began_unix_ms)} {_NAMES[lasting.phase]} {what} "
        f"({duration(since_ms)} instead of {duration(before_ms)})"
        f"{f': most of the difference{where}' if where else ''}"
    )
