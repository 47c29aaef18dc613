"""Finds since when long steps take more of the time: the level of the step time leaves them out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from fastprof.comparison.stats.changepoint import Watch
from fastprof.report.figures import duration, percent, step_number
from fastprof.session.history.explain import function_of
from fastprof.session.history.sides import CAUSE, Side, Suspicion, end_text, side_of, since_text
from fastprof.session.history.watcher import usual_ns
from fastprof.snapshot import Key
from fastprof.snapshot.history import Contexts, Segment, SegmentSteps, long_part

#: Fewest long steps that are named, and the largest part of all steps: more are a level.
FEWEST, _MOST = 3, 1 / 64
#: Distances of long steps that differ by less than this part are a period.
_REGULAR = 0.05


class StallWatcher:
    """Watches the part of the time that long steps take in the segments of one run."""

    #: Segments that are kept for explanations.
    KEPT = 128

    def __init__(self) -> None:
        self._recent: list[Segment] = []
        self._watch = Watch(beyond=0.0)
        self._stage = 0

    def add(self, segment: Segment, stage: int) -> Suspicion | None:
        """Add a segment of the run's current stage; return a rise."""
        if stage != self._stage:
            self._recent, self._watch, self._stage = [], Watch(beyond=0.0), stage
        self._recent.append(segment)
        del self._recent[: -self.KEPT]
        found = self._watch.add(_value(segment))
        if found is None:
            return None
        change, ago = found
        recent = self._recent
        ago = min(ago, len(recent) - 1)
        if change.drift:
            third = ago // 3
            before, since = recent[len(recent) - ago :][:third], recent[len(recent) - third :]
        else:
            ago = _extended(recent, ago)
            before, since = recent[: len(recent) - ago], recent[len(recent) - ago :]
            self._recent = since
        # What was before is no measure of a series that is mostly 0.
        self._watch = Watch(beyond=0.0)
        for one in since:
            self._watch.add(_value(one))
        if change.after <= change.before or not before or not since or not _are_named(since):
            return None
        start = before if change.drift else since
        first = (long_steps(start) or long_steps(since))[0][0]
        at_ns = next(one.start_ns for one in recent if one.first + one.steps > first)
        return Suspicion(change.drift, first, at_ns, tuple(before), tuple(since))


def _value(segment: Segment) -> float:
    return math.log1p(share((segment,)))


def _are_named(since: Sequence[Segment]) -> bool:
    count = _count(since)
    steps = sum(one.full.count + one.plain.count for one in since)
    return FEWEST <= count <= _MOST * steps and len(long_steps(since)) >= FEWEST


def _extended(recent: Sequence[Segment], ago: int) -> int:
    """Return how many segments ago the stalls began: a little earlier if their period goes on."""
    since, period = long_steps(recent[len(recent) - ago :]), _period(recent[len(recent) - ago :])
    if period is None:
        return ago
    first, least = since[0][0], median(row[1] for row in since) / 2
    for number, wall_ns, *_ in reversed(long_steps(recent[: len(recent) - ago])):
        if first - number > (1 + _REGULAR) * period or wall_ns < least:
            break
        first = number
    return min(len(recent) - 1, sum(one.first + one.steps > first for one in recent))


def _long(segment: Segment) -> tuple[int, float]:
    """Return the number of long steps, and the ns by which they are longer than usual ones."""
    counts = Counter(dict(segment.full.hist))
    counts.update(dict(segment.plain.hist))
    middle, count, long_ns = long_part(sorted(counts.items()))
    return count, long_ns - count * middle


def _count(parts: Sequence[Segment]) -> int:
    return sum(_long(one)[0] for one in parts)


def share(parts: Sequence[Segment]) -> float:
    """Return the time of long steps beyond that of usual ones, as a part of all other time."""
    more = sum(_long(one)[1] for one in parts)
    return more / max(1.0, sum(one.full.sum_ns + one.plain.sum_ns for one in parts) - more)


def long_steps(parts: Sequence[Segment]) -> list[tuple[int, ...]]:
    """Return the long steps that are kept, each a row of :class:`Long`, in their order."""
    kinds = [steps.long for one in parts for steps in (one.full, one.plain)]
    return sorted(row for long in kinds if long is not None for row in long.rows())


def period_of(rows: Sequence[Sequence[int]]) -> int | None:
    """Return after how many steps a long one comes, or None: they have no period."""
    apart = [b[0] - a[0] for a, b in pairwise(rows)]
    if len(apart) < FEWEST - 1:
        return None
    usual = sorted(apart)[(len(apart) - 1) // 2]
    if usual < 2:
        return None
    usual = min(steps for steps in apart if steps >= (1 - _REGULAR) * usual)
    # One of them may have been no step with a time.
    nearest = [max(1, round(steps / usual)) * usual for steps in apart]
    off = max(abs(steps - near) for steps, near in zip(apart, nearest, strict=True))
    return usual if off <= max(1, _REGULAR * usual) else None


def _period(parts: Sequence[Segment]) -> int | None:
    """Return the period of the long steps, if all of them were kept."""
    rows = long_steps(parts)
    return period_of(rows) if len(rows) == _count(parts) else None


def _long_ns(parts: Sequence[Segment]) -> float:
    """Return how long a long step takes: the median; the mean, if only the longest were kept."""
    rows, count = long_steps(parts), _count(parts)
    if len(rows) == count:
        return median(row[1] for row in rows)
    return usual_ns(side_of(parts).steps) + sum(_long(one)[1] for one in parts) / max(1, count)


def stalls_sentence(
    stalls: Suspicion,
    sections: Sequence[str],
    contexts: Contexts,
    keys: Sequence[Key],
    began_unix_ms: int,
) -> str:
    """Return a rise and what was measured of the long steps, as ``explain.sentence`` does."""
    rows = long_steps(stalls.since)
    usual_ms = usual_ns(side_of(stalls.since).steps) / 1e6
    when = since_text(stalls.first, stalls.at_ns, began_unix_ms)
    part = f"{percent(share(stalls.since))} %"
    what = f"{_what(stalls.since, 'takes')} (usually {duration(usual_ms)})"
    if stalls.drift:
        end = end_text(stalls.since)
        head = f"{when} long steps take ever more time, in all {part} more {end}: {what}"
    else:
        head = f"{when} {what}, in all {part} more time"
    before = ""
    if len(long_steps(stalls.before)) >= FEWEST:
        before = f"; before, {_what(stalls.before, 'took')}"
    return f"{head}{_causes(stalls, rows, usual_ms, sections, contexts, keys)}{before}"


def _what(parts: Sequence[Segment], takes: str) -> str:
    time, period = duration(_long_ns(parts) / 1e6), _period(parts)
    if period is not None:
        return f"every {step_number(period)} steps a step {takes} {time}"
    steps = sum(one.steps for one in parts)
    return f"{step_number(_count(parts))} of {step_number(steps)} steps {takes[:4]} {time}"


def _causes(
    stalls: Suspicion,
    rows: Sequence[Sequence[int]],
    usual_ms: float,
    sections: Sequence[str],
    contexts: Contexts,
    keys: Sequence[Key],
) -> str:
    """Return what most of the long steps' time is."""
    whole = sum(row[1] for row in rows) / 1e6
    more = whole - len(rows) * usual_ms
    scale = _long_ns(stalls.since) / 1e6 / whole
    found = []
    for section in sorted({row[2] for row in rows if row[2] >= 0}):
        ms = sum(row[3] for row in rows if row[2] == section) / 1e6
        if ms >= max(CAUSE * more, whole / 2):
            where = _function(stalls, sections[section], contexts, keys)
            found.append(f"{duration(scale * ms)} of it in {sections[section]}{where}")
    for name, at in (("garbage collection", 4), ("waiting for a CPU", 5)):
        ms = sum(row[at] for row in rows) / 1e6
        if ms >= CAUSE * more:
            found.append(f"{duration(scale * ms)} of it {name}")
    return f": {', '.join(found)}" if found else ""


def _function(stalls: Suspicion, section: str, contexts: Contexts, keys: Sequence[Key]) -> str:
    """Return the function with most of it, if functions of a long step were recorded."""
    before, since = side_of(stalls.before), side_of(stalls.since)
    ms = _more_ms(since) - _more_ms(before)
    if ms <= 0:
        return ""
    return function_of(before, since, section, contexts, keys, ms)


def _more_ms(side: Side) -> float:
    """Return the time of long steps beyond that of usual ones, per step with functions."""
    more_ns = _long(replace(side.whole, plain=SegmentSteps()))[1]
    return more_ns / max(1, side.whole.full.count) / 1e6
