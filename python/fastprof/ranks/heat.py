"""Heat map data: how late each rank is over the course of a job, in blocks of steps."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastprof.ranks.judge import Series

#: Most blocks of steps.
COLUMNS = 96
#: Most ranks: the latest ones in any block.
ROWS = 64


@dataclass(frozen=True, slots=True)
class RankHeat:
    """Lateness of ranks in blocks of steps.

    ``ranks`` are the rows, ascending; block ``i`` has ``size`` steps from ``firsts[i]`` (0-based)
    on, the last one up to step ``last``.  ``late_ms[row][i]`` is the rank's own work minus the
    median of the others in the same steps, in ms per step, as the mean of the block; None: it
    has no step there.  ``left_out`` is the number of ranks omitted because they are less late.
    """

    ranks: tuple[int, ...]
    firsts: tuple[int, ...]
    last: int
    size: int
    late_ms: tuple[tuple[float | None, ...], ...]
    left_out: int


def rank_heat(lateness: Mapping[int, Series]) -> RankHeat | None:
    """Return the lateness of ranks in blocks; None: it is known for fewer than two ranks.

    Args:
        lateness: ms of each step, by rank.
    """
    known = {rank: late for rank, late in lateness.items() if late.numbers}
    if len(known) < 2:
        return None
    first = min(late.numbers[0] for late in known.values())
    steps = max(late.numbers[-1] for late in known.values()) - first + 1
    size = -(-steps // COLUMNS)
    count = -(-steps // size)
    rows = {rank: _means(late, first, size, count) for rank, late in known.items()}
    # The latest ranks in any block.
    latest = sorted(rows, key=lambda rank: -max(ms for ms in rows[rank] if ms is not None))
    shown = sorted(latest[:ROWS])
    return RankHeat(
        ranks=tuple(shown),
        firsts=tuple(range(first, first + steps, size)),
        last=first + steps - 1,
        size=size,
        late_ms=tuple(rows[rank] for rank in shown),
        left_out=len(rows) - len(shown),
    )


def _means(late: Series, first: int, size: int, count: int) -> tuple[float | None, ...]:
    sums, steps = [0.0] * count, [0] * count
    for number, ms in zip(late.numbers, late.ms, strict=True):
        column = (number - first) // size
        sums[column] += ms
        steps[column] += 1
    return tuple(total / n if n else None for total, n in zip(sums, steps, strict=True))
