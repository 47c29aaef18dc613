"""A chart of the lateness of ranks over the steps of a job."""

import math
from collections.abc import Iterator

from fastprof.ranks.heat import RankHeat
from fastprof.ranks.model import RankReport
from fastprof.report.figures import duration, plural
from fastprof.tables.blocks import Block, Chart, Line, chart_top

#: A reading names this many ranks.
_NAMED = 3
#: If the latest cell is below this part of a step, the chart has nothing to show.
_LEAST = 0.01


def heat_blocks(report: RankReport) -> list[Block]:
    """Return the chart; empty if single steps are unknown."""
    heat = report.heat
    if heat is None:
        return []
    cells = [ms for row in heat.late_ms for ms in row if ms is not None and ms > 0]
    steps = [row.step_ms for row in report.rows if row.step_ms is not None]
    top, _ = chart_top(cells)
    top = max(top, _LEAST * max(steps, default=0.0))
    chart = Chart(
        "", "Lateness of each rank over the steps.", "heat", ("step", "rank"),
        [first + (heat.size - 1) / 2 for first in heat.firsts],
        tuple(
            Line(str(rank), 0, [math.nan if ms is None else ms for ms in row])
            for rank, row in zip(heat.ranks, heat.late_ms, strict=True)
        ),
        list(_readings(heat)), top, remark=_remark(heat, top), named=False,
    )  # fmt: skip
    return [Block("Lateness of the ranks over the steps", (chart,))]


def _readings(heat: RankHeat) -> Iterator[str]:
    for i, first in enumerate(heat.firsts):
        last = min(first + heat.size - 1, heat.last)
        when = f"Step {first}" if last == first else f"Steps {first} to {last}"
        late = [(row[i] or 0.0, rank) for rank, row in zip(heat.ranks, heat.late_ms, strict=True)]
        late = sorted((pair for pair in late if pair[0] > 0), key=lambda pair: -pair[0])
        named = ", ".join(f"rank {rank} {duration(ms)}" for ms, rank in late[:_NAMED])
        more = len(late) - _NAMED
        yield f"{when}: {named or 'no rank is late'}{f', and {more} more' if more > 0 else ''}"


def _remark(heat: RankHeat, top: float) -> str:
    text = (
        "The darker, the more own work a rank has than the median of the others in the same steps; "
        f"darkest from {duration(top)} per step on."
    )
    if any(ms is None for row in heat.late_ms for ms in row):
        text += " Grey: no steps were recorded."
    if heat.size > 1:
        text += f" Each cell is the mean of {heat.size} steps."
    if heat.left_out:
        text += f" {plural(heat.left_out, 'rank')} that are less late are left out."
    return text
