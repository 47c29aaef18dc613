"""The state of a job's ranks at one moment, from the last window of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median

from fastprof.names import readable
from fastprof.ranks.blocks import HeardRank, end_of, run_in_blocks, window_starts
from fastprof.ranks.cause import own_ms, tells
from fastprof.ranks.live.window import is_waiting
from fastprof.ranks.model import Straggler
from fastprof.ranks.verdict import waiting_signals
from fastprof.report.figures import duration

#: A rank counts as without a heartbeat after this many seconds.
SILENT_S = 15.0
NO_HEARTBEAT = "no heartbeat"


@dataclass(frozen=True, slots=True)
class RankNow:
    """One rank; times are ms per step in its last window, None if unknown.

    ``work_ms`` is its own work, also None if its window lacks the data for it; as in the verdict,
    it may leave out waits for a CPU.  ``late_ms`` is its own work minus the median of the others.
    ``state`` is a remark such as ``no heartbeat for 20.0 s``.
    """

    rank: int
    host: str | None
    steps: int
    step_ms: float | None
    work_ms: float | None
    late_ms: float | None
    waits_ms: float | None
    sections: tuple[tuple[str, float], ...]
    state: str
    ended: bool


@dataclass(frozen=True, slots=True)
class JobNow:
    """The ranks of a job at one moment.

    ``rows`` are the ranks with a heartbeat, or those of ``heard`` ranks to name;
    ``own_without_waits``: their own work leaves out waits for a CPU.  ``late`` is the rank
    that the others wait for.  ``verdict`` says so, or that no rank is late, or that it is unknown.
    """

    world_size: int
    rows: tuple[RankNow, ...]
    late: Straggler | None
    verdict: str
    #: Number of ranks with a heartbeat; None: the number of rows.
    heard: int | None = None
    own_without_waits: bool = False

    @property
    def known(self) -> int:
        """Number of ranks that sent a heartbeat."""
        return len(self.rows) if self.heard is None else self.heard


def rows_now(
    ranks: Mapping[int, HeardRank], late: Straggler | None, seen: Straggler | None, now: float
) -> tuple[RankNow, ...]:
    """Return a row for each rank, each in its own last window.

    Args:
        late: the rank that is late.
        seen: the rank that is or may be; own work is what its verdict compared.
    """
    runs = {}
    for number, rank in sorted(ranks.items()):
        starts = window_starts(rank, rank.size, end_of(rank))
        run = run_in_blocks(rank, rank.size, starts) if starts else None
        if run is not None and run.steps is not None:
            runs[number] = run
    signal = seen.signal if seen is not None else ""
    if runs and not signal:
        signal = waiting_signals(list(runs.values()))[0]
    plain = seen is not None and seen.without_cpu_wait
    works = {
        number: fmean(own_ms(run, run.steps, signal, plain=plain))
        for number, run in runs.items()
        if run.steps is not None
        and tells(run, signal)
        and not (plain and run.steps.cpu_wait is None)
    }
    found = []
    for number, rank in sorted(ranks.items()):
        others = [ms for other, ms in works.items() if other != number]
        work = works.get(number)
        run = runs.get(number)
        waits = None if run is None else dict(run.row.waits)
        found.append(
            RankNow(
                rank=number,
                host=rank.window.host or None,
                steps=rank.window.steps,
                step_ms=None if run is None else run.row.step_ms,
                work_ms=work,
                late_ms=None if work is None or not others else work - median(others),
                waits_ms=None if waits is None else waits.get("split", waits.get("sections")),
                sections=() if run is None else run.row.sections,
                state=_state(rank, late is not None and late.rank == number, now),
                ended=rank.window.ended,
            )
        )
    return tuple(found)


def _state(rank: HeardRank, late: bool, now: float) -> str:
    window = rank.window
    where = f" in {readable(window.place, 100)}" if window.place else ""
    if window.ended:
        return "ended"
    if now - rank.heard >= SILENT_S:
        lost = duration((now - rank.heard) * 1000)
        return f"{NO_HEARTBEAT} for {lost}, last seen{where}"
    if window.steps and now - rank.moved >= SILENT_S:
        still = duration((now - rank.moved) * 1000)
        if is_waiting(window):
            return f"waits{where} for {still}"
        return f"no step for {still}{',' if where else ''}{where}"
    if window.phase != "steps":
        return f"in {readable(window.phase, 30)}"
    return "late" if late else ""
