"""The health of devices in a report: means and shares of the samples, and ranks that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from fastprof.report.figures import with_percent
from fastprof.report.model_gpu import GpuDeviceRow, GpuHealthRow, ThrottleRow
from fastprof.report.ranks import RankRow
from fastprof.snapshot.gpu_health import GpuHealth, HealthFigure

#: Ranks' GPUs differ if one is hotter than the median of the others by this many C, or its
#: clock lower by this part.  Both are ours.
HOTTER_C = 10.0
SLOWER_CLOCK = 0.05

POWER_CAP = "power cap"
_REASONS = {
    "sw_power_cap": POWER_CAP,
    "hw_slowdown": "hardware slowdown",
    "sw_thermal": "thermal (software)",
    "hw_thermal": "thermal (hardware)",
    "hw_power_brake": "power brake",
}


def health_row(health: GpuHealth | None) -> GpuHealthRow | None:
    """Return what a report says of a device's health, None if nothing is known."""
    if health is None:
        return None
    temperature, clock = health.temperature_c, health.sm_clock_mhz
    power, t = health.power_mw, health.throttling
    reasons = []
    if t is not None:
        found = sorted(t.reasons.items(), key=lambda item: -item[1])
        reasons = [ThrottleRow(_REASONS[name], n / t.samples) for name, n in found if n]
    counts = [f.count for f in (temperature, clock, power) if f is not None]
    return GpuHealthRow(
        samples=max([*counts, 0 if t is None else t.samples]),
        temperature_c=_mean(temperature),
        temperature_max_c=None if temperature is None else temperature.max,
        sm_clock_mhz=_mean(clock),
        sm_clock_min_mhz=None if clock is None else clock.min,
        sm_clock_max_mhz=None if clock is None else clock.max,
        power_w=_mean(power, 1e3),
        power_max_w=None if power is None else power.max / 1e3,
        throttle_samples=0 if t is None else t.samples,
        throttled=None if t is None else t.throttled / t.samples,
        slowed=None if t is None else t.slowed / t.samples,
        reasons=tuple(reasons),
    )


def _mean(figure: HealthFigure | None, unit: float = 1.0) -> float | None:
    return None if figure is None else figure.sum / figure.count / unit


# ---- ranks


def rank_health(devices: Sequence[GpuDeviceRow]) -> dict[str, float | None]:
    """Return a rank's fields about health: of its hottest, slowest, most throttled device."""
    rows = [device.health for device in devices if device.health is not None]

    def worst(
        of: Callable[[GpuHealthRow], float | None], choose: Callable[[list[float]], float]
    ) -> float | None:
        known = [value for value in map(of, rows) if value is not None]
        return choose(known) if known else None

    return {
        "gpu_temperature_c": worst(lambda r: r.temperature_c, max),
        "gpu_temperature_max_c": worst(lambda r: r.temperature_max_c, max),
        "gpu_sm_clock_mhz": worst(lambda r: r.sm_clock_mhz, min),
        "gpu_throttled": worst(lambda r: r.throttled, max),
    }


def against_others(rows: Sequence[RankRow], rank: int) -> str:
    """Return in what a rank's GPU is worse than those of the others; empty if in nothing."""
    row = next((r for r in rows if r.rank == rank), None)
    if row is None:
        return ""
    others = [r for r in rows if r.rank != rank]
    parts = []
    clock, usual = row.gpu_sm_clock_mhz, _median(r.gpu_sm_clock_mhz for r in others)
    if clock is not None and usual is not None and clock < (1 - SLOWER_CLOCK) * usual:
        parts.append(f"its SM clock is {clock:.0f} MHz against {usual:.0f} MHz")
    heat, usual = row.gpu_temperature_c, _median(r.gpu_temperature_c for r in others)
    if heat is not None and usual is not None and heat >= usual + HOTTER_C:
        parts.append(f"it is at {heat:.0f} C against {usual:.0f} C")
    if not parts:
        return ""
    if row.gpu_throttled:
        parts.append(
            f"its clocks were throttled in {with_percent(row.gpu_throttled)} of the samples"
        )
    return f"The GPU of rank {rank} is worse than the others' (medians): {', '.join(parts)}."


def unlike_gpus(rows: Sequence[RankRow]) -> list[str]:
    """Return the notes on the rank with the slowest clock, and on the hottest one."""
    clocks = [(r.gpu_sm_clock_mhz, r.rank) for r in rows if r.gpu_sm_clock_mhz is not None]
    heats = [(r.gpu_temperature_c, r.rank) for r in rows if r.gpu_temperature_c is not None]
    ranks = [min(clocks)[1]] if clocks else []
    ranks += [max(heats)[1]] if heats else []
    return [text for rank in dict.fromkeys(ranks) if (text := against_others(rows, rank))]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
