"""Measures how late ranks are in their last blocks, since when, and in which functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, median_low

from fastprof.ranks.cause import begin, function_excess, own_ms, tells
from fastprof.ranks.judge import LATE_SHARE
from fastprof.ranks.live.window import RankDetail
from fastprof.ranks.model import FunctionExcess, RankRow, Straggler
from fastprof.ranks.row import Function, RankRun
from fastprof.ranks.verdict import waiting_signals


def may_be_late(runs: Sequence[RankRun]) -> bool:
    """Return whether a rank is so far above the others that tests are worth their time."""
    if len(runs) < 2:
        return False
    step_ms = median([run.row.step_ms or 0.0 for run in runs])
    for signal in (*waiting_signals(runs), "cpu"):
        if signal == "cpu" and any(run.steps is None or run.steps.cpu is None for run in runs):
            continue
        means = sorted(fmean(own_ms(run, run.steps, signal)) for run in runs if run.steps)
        if means[-1] - median(means[:-1]) >= LATE_SHARE * step_ms / 2:
            return True
    return False


def mean_late(runs: Sequence[RankRun], rank: int, signal: str) -> float | None:
    """Return how much later a rank is than the others on average; None: unknown.

    Of two others, the one with less work counts: the other may be late itself.
    """
    if not any(run.row.rank == rank and tells(run, signal) for run in runs):
        signal = waiting_signals(runs)[0]
    means = [
        (run.row.rank, fmean(own_ms(run, run.steps, signal)))
        for run in runs
        if run.steps is not None and tells(run, signal)
    ]
    here = next((ms for number, ms in means if number == rank), None)
    others = [ms for number, ms in means if number != rank]
    return None if here is None or not others else here - median_low(others)


@dataclass(frozen=True, slots=True)
class Begin:
    """The ``step`` since which a rank has been late; ``shown``: steps before it show that."""

    step: int
    shown: bool = False

    @property
    def text(self) -> str:
        """``since about step 1240``, or that it may have begun earlier."""
        if self.shown or not self.step:
            return f"since about step {self.step}"
        return f"since step {self.step} or earlier"


def begin_of(runs: Sequence[RankRun], late: Straggler, signal: str) -> Begin:
    """Return since when the rank has been late, as far as its steps are known."""
    by_rank = {run.row.rank: run for run in runs}
    here = by_rank[late.rank].steps
    if here is None:
        return Begin(0)
    if not tells(by_rank[late.rank], signal):
        return Begin(here.numbers[0])
    own = dict(zip(here.numbers, own_ms(by_rank[late.rank], here, signal), strict=True))
    rest = [
        dict(zip(run.steps.numbers, own_ms(run, run.steps, signal), strict=True))
        for run in runs
        if run.row.rank != late.rank and run.steps is not None and tells(run, signal)
    ]
    if not rest:
        return Begin(here.numbers[0])
    lateness = {
        number: ms - median(there)
        for number, ms in own.items()
        if (there := [values[number] for values in rest if number in values])
    }
    if not lateness:
        return Begin(here.numbers[-1])
    return Begin(*begin(lateness, late.late_ms, fmean(here.wall)))


def functions(details: Mapping[int, RankDetail], late: Straggler) -> tuple[FunctionExcess, ...]:
    here = details.get(late.rank)
    others = [_program(of) for rank, of in details.items() if rank != late.rank]
    return () if here is None else function_excess(_program(here), others, late.late_ms)


def _program(detail: RankDetail) -> RankRun:
    row = RankRow(
        detail.rank, None, None, "", 0, 0, None, None, None, (), (), None, None, None, None, None,
        None, (),
    )  # fmt: skip
    program = {
        (name, file, line): Function(us / 1000, {of: ms / 1000 for of, ms in called.items()})
        for name, file, line, us, called in detail.functions
    }
    return RankRun(row, program=program)
