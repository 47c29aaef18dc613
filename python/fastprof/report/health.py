"""The health of devices in a report: means and shares of the samples."""

from fastprof.report.model_gpu import GpuHealthRow, ThrottleRow
from fastprof.snapshot.gpu_health import GpuHealth, HealthFigure

POWER_CAP = "power cap"
_REASONS = {
    "sw_power_cap": POWER_CAP,
    "hw_slowdown": "hardware slowdown",
    "sw_thermal": "thermal (software)",
    "hw_thermal": "thermal (hardware)",
    "hw_power_brake": "power brake",
}


def health_row(health: GpuHealth | None) -> GpuHealthRow | None:
    """Return the row of a device's health, None without readings."""
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
