"""Times as they would be without the training thread's wait for a CPU.

Linux counts how long a thread is ready to run and has no CPU.  fastprof reads that count where
top-level sections begin and end, so each section's wait is known.  A step after one without waits
is not read: if several steps have none, they show how long sections take.  Within a section, and in
the time in no section, a wait hits whatever runs, or ends a wait for a file or thread: each part
gets it in proportion to its time, and chance decides how many of the waits really hit it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from fastprof.report.steps import StepSeriesView

#: With less waiting, times are taken as they are.
LITTLE = 0.1
#: A time beyond its limit is judged if chance allows no less than this part of the limit.
NEAR = 0.75
#: Standard deviations of an interval of 90 %.
_WIDTH = 1.64
#: Waits differ in length, so their number counts as this part of it.  Measured with loops of known
#: CPU time (25 rounds at 82 % waiting): errors have 1.1 times the deviation of equal waits.
_EQUAL = 0.8
#: Without a count of waits, each counts as this long: two time slices of another program.
_WAIT_MS = 8.0
#: Steps without a wait show how long a section takes if there are this many of them; a step with
#: less waiting counts as one.
_QUIET_STEPS, _QUIET = 10, 0.02
#: ... and if they are as long as all steps without their waits, which use cold caches.
_AS_LONG = (0.6, 1.3)
#: ... and if no section runs in fewer of them than in others.
_AS_OFTEN = 0.8
#: At least this part of computing time is no wait: the figures come from different clocks.
_LEAST = 0.01


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the step without its wait for a CPU, with the interval that chance allows."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class Pool:
    """Time per step, and how long of it the thread waits for a CPU."""

    ms: float
    wait_ms: float

    @property
    def part(self) -> float:
        """The part of the time in which the thread has a CPU."""
        return max(_LEAST, 1.0 - self.wait_ms / self.ms) if self.ms > 0 else 1.0


@dataclass(frozen=True, slots=True)
class CpuWaits:
    """The wait for a CPU in ms per step: in each section for which it is known, and in the rest.

    ``count`` is the number of waits in all steps.  Of ``unread`` of their time the section is not
    known, and has the distribution of the ``read`` waits of which it is.
    """

    span_ms: float
    wait_ms: float
    count: float
    sections: Mapping[str, Pool]
    rest: Pool
    read: float = 0.0
    unread: float = 0.0

    @property
    def share(self) -> float:
        """The part of the step in which the training thread waits for a CPU."""
        return self.wait_ms / self.span_ms if self.span_ms > 0 else 0.0

    @property
    def matter(self) -> bool:
        """Whether parts of the step must be judged without it."""
        return self.share > LITTLE and self.running_ms > 0

    @property
    def running_ms(self) -> float:
        """The length of a step without its wait for a CPU."""
        return max(_LEAST * self.span_ms, self.span_ms - self.wait_ms)

    def part(self, names: frozenset[str]) -> float:
        """Return the part of the time of these sections in which the thread has a CPU.

        1 if it hardly waits.
        """
        if not self.matter:
            return 1.0
        pools = [self.sections[name] for name in names if name in self.sections] or [self.rest]
        return Pool(sum(pool.ms for pool in pools), sum(pool.wait_ms for pool in pools)).part

    def without(
        self, ms: float, places: Mapping[str, float], names: frozenset[str] = frozenset()
    ) -> Share:
        """Return a time per step, with its waits, as a part of the step without waiting.

        Args:
            ms: the time.
            places: its parts by section.
            names: sections to which it belongs if the places are not known.
        """
        middle = variance = 0.0
        for name, part_ms in self._by_pool(ms, places, names).items():
            pool = self.sections.get(name, self.rest)
            middle += part_ms * pool.part
            hit = min(1.0, part_ms / pool.ms) if pool.ms > 0 else 1.0
            waits = _EQUAL * self.count * (pool.wait_ms / self.wait_ms if self.wait_ms > 0 else 0.0)
            # Of a part, CPU time and waits have the same share of its pool but for chance.
            error = pool.wait_ms * pool.part * sqrt(hit * (1.0 - hit) / max(1.0, waits))
            variance += error * error + (hit * self._error_ms(pool)) ** 2
        error = _WIDTH * sqrt(variance)
        low, high = max(0.0, middle - error), middle + error
        return Share(*(min(1.0, one / self.running_ms) for one in (low, middle, high)))

    def _error_ms(self, pool: Pool) -> float:
        """Return the deviation of a section's wait, if chance decided which waits were read."""
        if not self.unread:
            return 0.0
        read = _EQUAL * self.read
        # One more in the section and one elsewhere: none of few waits read does not mean none.
        part = (pool.wait_ms / self.wait_ms * read + 1.0) / (read + 2.0)
        return self.unread * self.wait_ms * sqrt(part * (1.0 - part) / max(1.0, read))

    def _by_pool(
        self, ms: float, places: Mapping[str, float], names: frozenset[str]
    ) -> Mapping[str, float]:
        """Return the time by section; the empty name has the rest."""
        known = {name: one for name, one in places.items() if name in self.sections}
        if any(one > self.sections[name].ms for name, one in known.items()) or not places:
            # Only their sum is known, or some of the time lies elsewhere.
            rows = {name: self.sections[name].ms for name in names if name in self.sections}
            whole = sum(rows.values())
            if whole > 0:
                return {name: ms * one / whole for name, one in rows.items()}
        return {**known, "": max(0.0, ms - sum(known.values()))}


def cpu_waits(
    rows: Mapping[str, float],
    wait_ms: float,
    waits: Mapping[str, float],
    series: StepSeriesView,
    sections: StepSeriesView,
    steps: int,
    of_steps: int | None = None,
) -> CpuWaits:
    """Return the waits of ``steps`` measured steps.

    Args:
        rows: the parts of a step: ms per step by section; they add up to the step.
        wait_ms: the whole wait for a CPU per step.
        waits: the wait of some of the steps by section; empty: not recorded.
        series: single steps.
        sections: single steps that have sections; without names: none is like the others.
        steps: their number.
        of_steps: number of the steps that the parts are means of; None: the same steps.
    """
    span_ms = sum(rows.values())
    whole = min(span_ms, wait_ms)
    scale = whole / placed if (placed := sum(waits.values())) > 0 else 0.0
    running = _running(sections, span_ms - whole)
    pools = {
        name: Pool(ms, max(0.0, ms - running[name]) if name in running else (
            min(ms, scale * waits.get(name, 0.0))
        ))
        for name, ms in rows.items()
        if placed > 0 and not name.startswith("(")
    }  # fmt: skip
    rest_ms = span_ms - sum(ms for name, ms in rows.items() if name in pools)
    rest_wait = max(0.0, whole - sum(pool.wait_ms for pool in pools.values()))
    switches = series.switches
    count = sum(switches) / len(switches) * steps if switches else 0.0
    count = count or whole * steps / _WAIT_MS
    read = min(1.0, placed / whole) if whole > 0 else 1.0
    return CpuWaits(
        span_ms, whole, count, pools, Pool(max(rest_ms, rest_wait), rest_wait), read * count,
        0.0 if running or not placed else 1.0 - read * min(1.0, steps / (of_steps or steps or 1)),
    )  # fmt: skip


def _running(series: StepSeriesView, running_ms: float) -> Mapping[str, float]:
    """Return how long a thread runs in each section of a step, from single steps without a wait.

    Empty if there are too few, or if they are not like the others of the series.  The series may
    be of steps that recording makes longer: only the sections' parts of them count.

    Args:
        series: single steps.
        running_ms: the length of a step without its wait.
    """
    steps = list(zip(series.wall_ms, series.cpu_wait_ms, strict=False))
    quiet = series.only([i for i, (ms, wait) in enumerate(steps) if wait <= _QUIET * ms])
    mean = sum(ms - wait for ms, wait in steps) / max(1, len(steps))
    few, most = (part * mean * len(quiet) for part in _AS_LONG)
    if len(quiet) < _QUIET_STEPS or not 0 < few <= sum(quiet.wall_ms) <= most:
        return {}
    for name, column in series.names.items():
        often = sum(ms > 0 for ms in quiet.names[name]) / len(quiet)
        if often < _AS_OFTEN * sum(ms > 0 for ms in column) / len(column):
            return {}
    scale = running_ms / sum(quiet.wall_ms)
    return {name: scale * sum(calm) for name, calm in quiet.names.items()}
