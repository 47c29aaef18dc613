"""The health of a device in a snapshot: temperature, clock, power, throttling.

Samples of the driver's own figures, about one per second while the device is in use.  A value that
the device does not report is None, never 0.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Annotated

from fastprof.snapshot.codec import Count, Flat, Record, Row, Saved
from fastprof.snapshot.kinds import Counts, Integer, Known, WrongError

#: Reasons for throttled clocks.  An idle GPU and clocks set by an administrator are not throttling.
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
    """The numbers of ``samples`` with throttled clocks.

    ``throttled``: for any reason; ``slowed``: for another reason than the power cap, which often
    limits busy GPUs.  ``reasons`` has a count for each of :data:`REASONS`.
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

    The clock covers samples in which the driver did not report the device as idle.
    """

    temperature_c: HealthFigure | None = None
    sm_clock_mhz: HealthFigure | None = None
    power_mw: HealthFigure | None = None
    throttling: Annotated[ThrottleSamples | None, Saved("reasons")] = None
