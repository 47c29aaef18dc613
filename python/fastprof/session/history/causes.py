"""Why steps take longer since some moment: one table of causes that are no sections.

A cause compares what was measured on both sides of a change, and says nothing without evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from fastprof.report.figures import duration, percent, plural
from fastprof.report.figures import size as written_size
from fastprof.session.history.sides import CAUSE, Side
from fastprof.snapshot.history import Segment

#: Memory that grows is named from this rate on, in bytes per step, and this part of it.
_GROWS, _GROWTH = 1024.0, 0.05
#: Fewest batches, load times and samples of a GPU on each side.
_FEWEST = 8
#: A worker's time for a batch, and a clock, that differ by less are the same.
_SLOWER, _CLOCK = 1.2, 0.05


@dataclass(frozen=True, slots=True)
class Compared:
    """The two sides of a change of the step time; ``parts`` are the segments since then."""

    before: Side
    since: Side
    parts: Sequence[Segment]

    @property
    def ms(self) -> float:
        """The difference per step."""
        return self.since.step_ms - self.before.step_ms


@dataclass(frozen=True, slots=True)
class Cause:
    """One kind of cause.

    ``words`` returns what the evidence shows, nothing if it shows nothing.  ``meanwhile``: it is no
    part of a step's time.
    """

    name: str
    words: Callable[[Compared], str]
    meanwhile: bool = False


def causes(compared: Compared, *, meanwhile: bool) -> list[str]:
    """Return the words of all causes of one kind."""
    said = (cause.words(compared) for cause in CAUSES if cause.meanwhile == meanwhile)
    return [words for words in said if words]


def _part(name: str, part: Callable[[Side], float], of: Compared) -> str:
    """Return the words about a part of a step; ``part`` returns it in ms per step."""
    ms = part(of.since) - part(of.before)
    if ms / of.ms >= CAUSE:
        return f"{name} {signed(ms)} of it"
    if ms / of.ms <= -CAUSE:  # the change is larger without it
        return f"in spite of {name} {signed(ms)}"
    return ""


def _disk(of: Compared) -> str:
    faults, before = (s.steps.faults / max(1, s.steps.count) for s in (of.since, of.before))
    if of.ms <= 0 or faults - before < 1:
        return ""
    return f"{faults - before:.0f} more page faults per step wait for the disk"


def _workers(of: Compared) -> str:
    """Return the words about the training loader's workers, if the loop waits for them."""
    a, b = of.before.whole.loading, of.since.whole.loading
    if of.ms <= 0 or a is None or b is None or min(a.batches, b.batches) < _FEWEST:
        return ""
    waits = [one.blocked_ns / one.batches / 1e6 for one in (a, b)]
    parts = [percent(one.blocked / one.batches) for one in (a, b)]
    if (waits[1] - waits[0]) / of.ms < CAUSE:
        return ""
    more = [f"{duration(waits[1])} per batch instead of {duration(waits[0])}"]
    if a.workers != b.workers:
        more.append(f"{plural(b.workers, 'worker')} instead of {a.workers}")
    if min(a.loads, b.loads) >= _FEWEST:
        loads = [one.load_ns / one.loads / 1e6 for one in (a, b)]
        if loads[1] >= _SLOWER * loads[0]:
            each = [duration(ms) for ms in loads]
            more.append(f"a worker takes {each[1]} for one instead of {each[0]}")
    return (
        f"the loop waits for {parts[1]} % of the batches of the loader's workers instead of "
        f"{parts[0]} % ({', '.join(more)})"
    )


def _ranks(of: Compared) -> str:
    """Return the words about waits for other ranks, which steps with functions show."""
    a, b = of.before.whole, of.since.whole
    if a.waits_ns is None or b.waits_ns is None or min(a.full.count, b.full.count) < _FEWEST:
        return ""
    ms = (b.waits_ns / b.full.count - a.waits_ns / a.full.count) / 1e6
    return f"waiting for other ranks {signed(ms)} of it" if ms / of.ms >= CAUSE else ""


def _gpu_clock(of: Compared) -> str:
    """Return the words about a GPU that runs slower since the change."""
    a, b = of.before.whole.gpu_clock, of.since.whole.gpu_clock
    if of.ms <= 0 or a is None or b is None or min(a.clocks, b.clocks) < _FEWEST:
        return ""
    mhz = [one.clock_mhz / one.clocks for one in (a, b)]
    if mhz[1] > (1 - _CLOCK) * mhz[0]:
        return ""
    whose = f"mean clock of {b.devices} GPUs" if (b.devices or 0) > 1 else "GPU's clock"
    found = f"the {whose} is {mhz[1]:.0f} MHz instead of {mhz[0]:.0f} MHz"
    if min(a.temperatures, b.temperatures) >= _FEWEST:
        heat = [one.temperature_c / one.temperatures for one in (a, b)]
        found += f" at {heat[1]:.0f} \N{DEGREE SIGN}C instead of {heat[0]:.0f} \N{DEGREE SIGN}C"
    if min(a.judged, b.judged) >= _FEWEST:
        slowed = [one.slowed / one.judged for one in (a, b)]
        if slowed[1] - slowed[0] >= 0.1:
            found += f", and throttled for {percent(slowed[1])} % of the time"
    return f"{found} meanwhile"


def _memory(name: str, bytes_of: Callable[[Segment], int | None], of: Compared) -> str:
    """Return how fast memory grows since the change, if it does in most segments."""
    values = [bytes_of(one) for one in of.parts]
    known = [value for value in values if value is not None]
    if of.ms <= 0 or len(known) < max(3, len(values)):
        return ""
    first, last = of.parts[0], of.parts[-1]
    steps = last.first + last.steps - first.first - first.steps
    grown = known[-1] - known[0]
    rising = sum(b > a for a, b in pairwise(known))
    if rising < 0.7 * (len(known) - 1) or grown < max(_GROWS * steps, _GROWTH * known[0]):
        return ""
    return f"{name} grows {written_size(round(1000 * grown / steps))} per 1000 steps meanwhile"


CAUSES = (
    Cause(
        "garbage collection",
        partial(_part, "garbage collection", lambda side: side.per_step(side.steps.gc_ns)),
    ),
    Cause(
        "waiting for a CPU",
        partial(_part, "waiting for a CPU", lambda side: side.per_step(side.steps.cpu_wait_ns)),
    ),
    Cause("waiting for the disk", _disk),
    Cause("loader workers", _workers),
    Cause("other ranks", _ranks),
    Cause("GPU clock", _gpu_clock, meanwhile=True),
    Cause(
        "host memory", partial(_memory, "memory of the process", lambda one: one.rss_bytes), True
    ),
    Cause("GPU memory", partial(_memory, "GPU memory", lambda one: one.gpu_bytes), True),
)


def signed(ms: float) -> str:
    """Return a difference with its sign."""
    return f"{'+' if ms > 0 else '-'}{duration(abs(ms))}"
