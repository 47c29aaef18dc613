"""The health of a device in a snapshot: temperature, clock, power, throttling.

Samples of the driver's own figures, about one a second while the device is in use.  What the
device does not tell is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastprof.snapshot.fields import as_dict, as_int, as_ints, fail

#: Why clocks are throttled.  An idle GPU and clocks that somebody has set are no throttling.
REASONS = ("sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")


@dataclass(frozen=True, slots=True)
class HealthFigure:
    """One figure over its samples, in its unit; the mean is ``sum / count``."""

    count: int
    sum: int
    min: int
    max: int
    last: int


@dataclass(frozen=True, slots=True)
class ThrottleSamples:
    """In how many of ``samples`` clocks were throttled.

    ``throttled``: for any reason; ``slowed``: for one that is not the power cap, which busy
    GPUs are often held by.  ``reasons`` has a count for each of :data:`REASONS`.
    """

    samples: int
    throttled: int
    slowed: int
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """Temperature in C, clock of the multiprocessors in MHz, power in mW, throttling.

    The clock is over samples in which the driver did not call the device idle.
    """

    temperature_c: HealthFigure | None = None
    sm_clock_mhz: HealthFigure | None = None
    power_mw: HealthFigure | None = None
    throttling: ThrottleSamples | None = None


_FIGURES = ("temperature_c", "sm_clock_mhz", "power_mw")
_COUNTS = ("samples", "throttled", "slowed")


def health_dict(health: GpuHealth | None) -> dict[str, Any] | None:
    """Return what :func:`read_health` reads."""
    if health is None:
        return None
    out: dict[str, Any] = {}
    for name in _FIGURES:
        f = getattr(health, name)
        out[name] = None if f is None else [f.count, f.sum, f.min, f.max, f.last]
    t = health.throttling
    out["reasons"] = (
        None if t is None else {**{name: getattr(t, name) for name in _COUNTS}, **t.reasons}
    )
    return out


def read_health(value: object, where: str) -> GpuHealth | None:
    """Check the health of a device; None: nothing is known of it.

    Raises:
        SnapshotError: a value is missing, of the wrong type, or does not fit the others.
    """
    if value is None:
        return None
    d = as_dict(value, where)
    figures = {name: _figure(d.get(name), f"{where}.{name}") for name in _FIGURES}
    return GpuHealth(**figures, throttling=_throttling(d.get("reasons"), f"{where}.reasons"))


def _figure(value: object, where: str) -> HealthFigure | None:
    if value is None:
        return None
    count, total, low, high, last = as_ints(value, where, 5)
    if not (count and low <= last <= high and count * low <= total <= count * high):
        raise fail(where, value, "[count, sum, min, max, last] of some samples")
    return HealthFigure(count, total, low, high, last)


def _throttling(value: object, where: str) -> ThrottleSamples | None:
    if value is None:
        return None
    d = as_dict(value, where)
    samples = as_int(d.get("samples"), f"{where}.samples", 1)
    throttled, slowed, *counts = (
        as_int(d.get(name), f"{where}.{name}", 0, samples) for name in (*_COUNTS[1:], *REASONS)
    )
    return ThrottleSamples(samples, throttled, slowed, dict(zip(REASONS, counts, strict=True)))
