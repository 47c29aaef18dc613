"""The health of a job's GPUs: figures per rank, and ranks whose GPU differs."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from fastprof.ranks.model import RankRow
from fastprof.report.figures import with_percent
from fastprof.report.model_gpu import GpuDeviceRow, GpuHealthRow

#: A rank's GPU differs if it is hotter than the median of the others by this many C, or its
#: clock is lower by this share.  Both limits are our choice.
HOTTER_C = 10.0
SLOWER_CLOCK = 0.05


def rank_health(devices: Sequence[GpuDeviceRow]) -> dict[str, float | None]:
    """Return a rank's health fields, of its hottest, slowest, most throttled device."""
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
    """Return how a rank's GPU is worse than those of the others; empty if it is not."""
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
