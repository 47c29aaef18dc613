"""Finds since when steps of a run take longer, from its segments."""

from __future__ import annotations

import math

from fastprof.comparison.stats.changepoint import KNOWN, LASTS, Found, Watch
from fastprof.session.history.sides import Suspicion
from fastprof.snapshot.history import LONG_TIMES, Segment, SegmentSteps, long_part

#: Segments at the beginning that are no measure: the full look, caches, clocks.
_SETTLES = 2
#: Fewest steps of a segment without functions; steps of other segments are those with functions.
_FEWEST = 4
#: Segments one after the other that mostly have steps of the other kind: the full look has ended;
#: or, after many, each step has functions again.  Windows of slow steps fill a few segments.
_OTHERS = {True: 2, False: 24}
#: The next drift is named when steps take this many times as long as at the last one.
_AGAIN = 1.25


class Watcher:
    """Watches the segments of one run: their step times, and those without waits for a CPU."""

    #: Segments that are kept for explanations.
    KEPT = 128

    def __init__(self) -> None:
        self._recent: list[Segment] = []
        self._own, self._wall = Watch(), Watch()
        self._left_out = 0
        self._plain = False
        self._stage = 0
        self._drifted = 0.0  # level at the last drift
        self._others = 0  # segments with mostly other steps, one after the other

    @property
    def knows(self) -> bool:
        """Whether there are enough segments to find a change."""
        return self._wall.count >= KNOWN + LASTS

    def add(self, segment: Segment, stage: int) -> Suspicion | None:
        """Add a segment of the run's current stage; return a change."""
        plain = segment.plain.count >= max(_FEWEST, segment.full.count)
        self._others = 0 if plain == self._plain else self._others + 1
        if self._others >= _OTHERS[plain] or stage != self._stage:
            self._begin(plain, stage)
        steps = shown(segment, self._plain)
        if self._left_out < _SETTLES or steps.count < _FEWEST or self._others:
            self._left_out += 1
            return None
        self._recent.append(segment)
        del self._recent[: -self.KEPT]
        level = math.log(usual_ns(steps))
        waits = min(0.99, steps.cpu_wait_ns / steps.sum_ns) if steps.sum_ns else 0.0
        own = self._own.add(level + math.log1p(-waits))
        wall = self._wall.add(level)
        found = own or wall
        if found is None:
            return None
        return self._suspicion(*found)

    def _begin(self, plain: bool, stage: int) -> None:
        self._own, self._wall = Watch(), Watch()
        self._recent = []
        self._left_out, self._plain, self._stage, self._drifted = 0, plain, stage, 0.0
        self._others = 0

    def _suspicion(self, found: Found, ago: int) -> Suspicion | None:
        recent = self._recent
        n = len(recent)
        for watch in (self._own, self._wall):
            watch.settle(ago, found.drift)
        if found.drift:
            third = min(n, ago) // 3
            before, since = recent[n - min(n, ago) :][:third], recent[n - third :]
            if self._drifted and found.after < self._drifted + math.log(_AGAIN):
                return None
            self._drifted = found.after
        else:
            ago = min(ago, n - 1)
            self._drifted = 0.0
            before, since = recent[: n - ago], recent[n - ago :]
            self._recent = since
        if not before or not since:
            return None
        start = before[0] if found.drift else since[0]
        return Suspicion(found.drift, start.first, start.start_ns, tuple(before), tuple(since))


def shown(segment: Segment, plain: bool) -> SegmentSteps:
    """Return the steps without functions, or those with them."""
    return segment.plain if plain else segment.full


def usual_ns(steps: SegmentSteps) -> float:
    """Return the mean step time, in which very long steps count as a few usual ones.

    A pause of the whole machine is no level.
    """
    middle, count, long_ns = long_part(steps.hist)
    less_ns = long_ns - count * LONG_TIMES * middle
    return max(1.0, (steps.sum_ns - less_ns) / steps.count)
