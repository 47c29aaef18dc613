"""Finds work of one rank between steps while the others wait: checkpoints, validation.

The steps of this rank do not contain that work; in the steps of the others it is waiting.  Three
facts together reveal it: the rank has spent more time between its steps than the others, the
steps of the others were longer than its own, and with that work it has more own work than each of
them: otherwise all wait for another rank, and the work fits into this rank's wait for it.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from fastprof.ranks.cause import own_ms, tells
from fastprof.ranks.model import RankRow, WorkBetweenSteps
from fastprof.ranks.row import Between, RankRun
from fastprof.ranks.verdict import waiting_signals

#: Work that is a smaller share of the others' steps is not reported.
_LEAST = 0.02
#: The others' steps must be longer by this share of the work, and their own work smaller:
#: otherwise they did not wait for it.
_WAITED = 0.5


def works_between_steps(runs: Sequence[RankRun]) -> list[WorkBetweenSteps]:
    """Return work of ranks between steps for which others waited, the longest wait first."""
    steps = [run.row.step_ms for run in runs if run.row.step_ms]
    phases = {phase for run in runs for phase in run.between}
    if len(runs) < 2 or not steps or not phases:
        return []
    # Most ranks have as much of a phase as the median: only the rest is compared with the others.
    usual = {phase: median([_ms(run.between, phase) for run in runs]) for phase in phases}
    works = _works_ms(runs)
    least_ms = _LEAST * min(steps) / 2  # of two ranks the median is half of the difference
    found = [
        one
        for run in runs
        if any(
            _ms(run.between, phase) - usual[phase] >= least_ms * run.row.steps for phase in phases
        )
        for one in _of(run, runs, works)
    ]
    return sorted(found, key=lambda one: -one.wait_ms)


def pace_ms(row: RankRow, works: Sequence[WorkBetweenSteps]) -> float:
    """Return a rank's time per step with its work between steps: equal if ranks wait."""
    return (row.step_ms or 0.0) + sum(one.wait_ms for one in works if one.rank == row.rank)


def _works_ms(runs: Sequence[RankRun]) -> dict[int, float]:
    """Return own work per step by rank, with what is between steps; empty: unknown."""
    signal = waiting_signals(runs)[0]
    if signal == "none" or not all(tells(run, signal) for run in runs):
        return {}
    return {
        run.row.rank: fmean(own_ms(run, run.steps, signal))
        + sum(one.ms for one in run.between.values()) / max(1, run.row.steps)
        for run in runs
        if run.steps is not None
    }


def _of(
    run: RankRun, runs: Sequence[RankRun], works: Mapping[int, float]
) -> list[WorkBetweenSteps]:
    if not run.row.step_ms or not run.row.steps:
        return []
    waited = 0.0
    found = []
    for phase, here in sorted(run.between.items(), key=lambda of: -of[1].ms):
        others = [other for other in runs if other is not run]
        usual = median([_ms(other.between, phase) for other in others])
        if here.ms <= usual:
            continue
        # Ranks with about as much of this work do not wait for it.
        half = (here.ms + usual) / 2
        also = tuple(o.row.rank for o in others if _ms(o.between, phase) >= half)
        others = [other for other in others if other.row.rank not in also and other.row.step_ms]
        if not others:
            continue
        step_ms = median([other.row.step_ms or 0.0 for other in others])
        usual = median([_ms(other.between, phase) for other in others])
        excess = (here.ms - usual) / run.row.steps
        longer = step_ms - run.row.step_ms - waited
        ahead = math.inf
        if works:
            ahead = works[run.row.rank] - max(works[other.row.rank] for other in others)
        if excess < _LEAST * step_ms or min(longer, ahead) < _WAITED * excess:
            continue
        wait = min(excess, longer)
        waited += wait
        found.append(
            WorkBetweenSteps(
                run.row.rank, run.row.host, phase, here.ms, usual, wait, wait / step_ms,
                here.function, also,
            )
        )  # fmt: skip
    return found


def _ms(between: Mapping[str, Between], phase: str) -> float:
    return between[phase].ms if phase in between else 0.0
