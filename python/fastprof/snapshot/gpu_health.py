"""The health of a device in a snapshot: temperature, clock, power, throttling.

Samples of the driver's own figures, about one a second while the device is in use.  What the
device does not tell is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Annotated

from fastprof.snapshot.codec import (
    Count,
    Counts,
    Flat,
    Integer,
    Known,
    Record,
    Row,
    Saved,
    WrongError,
)

#: Why clocks are throttled.  An idle GPU and clocks set by an administrator are not throttling.
REASONS = ("sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")


@dataclass(frozen=True, slots=True)
class HealthFigure(Row):
    """One figure over its samples, in its unit; the mean is ``sum / count``."""

    count: Count
    sum: Count
    min: Count
    max: Count
    last: Count

    def check(self, known: Known) -> None:
        n, least, most = self.count, self.min, self.max
        if not (n and least <= self.last <= most and n * least <= self.sum <= n * most):
            raise WrongError(list(astuple(self)), "[count, sum, min, max, last] of some samples")


@dataclass(frozen=True, slots=True)
class ThrottleSamples(Record):
    """In how many of ``samples`` clocks were throttled.

    ``throttled``: for any reason; ``slowed``: for one that is not the power cap, which busy
    GPUs are often held by.  ``reasons`` has a count for each of :data:`REASONS`.
    """

    samples: Annotated[int, Integer(1)]
    throttled: Count
    slowed: Count
    reasons: Flat[Annotated[Mapping[str, int], Counts(*REASONS)]] = field(default_factory=dict)

    def check(self, known: Known) -> None:
        for name, n in (
            ("throttled", self.throttled),
            ("slowed", self.slowed),
            *self.reasons.items(),
        ):
            if n > self.samples:
                raise WrongError(n, f"at most {self.samples} samples", f".{name}")


@dataclass(frozen=True, slots=True)
class GpuHealth(Record):
    """Temperature in C, clock of the multiprocessors in MHz, power in mW, throttling.

    The clock is over samples in which the driver did not call the device idle.
    """

    temperature_c: HealthFigure | None = None
    sm_clock_mhz: HealthFigure | None = None
    power_mw: HealthFigure | None = None
    throttling: Annotated[ThrottleSamples | None, Saved("reasons")] = None
