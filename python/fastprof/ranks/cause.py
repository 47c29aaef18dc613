"""Why a rank is late: its sections and functions against the median of the others."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

from fastprof.ranks.judge import LATE_SHARE
from fastprof.ranks.model import FunctionExcess
from fastprof.ranks.row import Place, RankRun, RankSteps
from fastprof.report.phase_names import BACKWARD, is_communication
from fastprof.report.rows import UNACCOUNTED

#: A section or function explains a delay if it accounts for this share of it.
EXPLAINS = 0.25
_FUNCTIONS = 3
#: A library function has most of a difference if it has this share of it.
_MOST = 0.6
#: Fewest steps, or blocks of steps, that show that a delay began after them.
_HEALTHY = 10

#: Section, its time here, and the median of the others; None: no particular section.
Section = tuple[str | None, float | None, float | None]
NOWHERE: Section = (None, None, None)


def most_of(
    values: Mapping[str, float], others: Sequence[Mapping[str, float]], late_ms: float
) -> Section:
    """Return the section where a rank loses most, if that explains a delay of ``late_ms``."""
    found = []
    for name, here in values.items():
        # A section that the others do not have takes them no time.
        usual = median([other.get(name, 0.0) for other in others])
        found.append((here - usual, name, here, usual))
    best = max(found, default=None)
    return NOWHERE if best is None or best[0] < EXPLAINS * late_ms else best[1:]


def sections_of(run: RankRun, signal: str, first: int, last: int) -> dict[str, float]:
    """Return the own work per top-level section in ms per step, of steps first to last.

    Waiting for other ranks is subtracted if its section is known, and so is fastprof's cost, as in
    the tables of sections; time in no section is a row, too.
    """
    steps = run.steps
    if steps is None:
        return {}
    low, high = bisect_left(steps.numbers, first), bisect_right(steps.numbers, last)
    if low >= high:
        return {}

    def mean(column: array[float] | None) -> float:
        return fmean(column[low:high]) if column else 0.0

    found = {name: mean(column) for name, column in steps.sections.items()}
    found[UNACCOUNTED] = mean(steps.wall) - sum(found.values())
    engine = mean(steps.autograd) if signal in ("autograd", "cpu") else 0.0
    for name in list(found):
        if is_communication(name) or (signal == "backward" and name in BACKWARD):
            del found[name]
            continue
        found[name] -= run.waiting.get(name, 0.0) + run.overhead.get(name, 0.0)
    where = next((name for name in BACKWARD if name in found), UNACCOUNTED)
    if where in found and signal != "cpu":
        found[where] -= engine
    return {name: max(0.0, ms) for name, ms in found.items()}


def section_of_step(run: RankRun, others: Sequence[RankRun], signal: str, step: int) -> str | None:
    """Return the section in which a rank was late in one step."""
    here = sections_of(run, signal, step, step)
    there = [values for values in (sections_of(o, signal, step, step) for o in others) if values]
    if not here or not there:
        return None
    # Communication is known as a mean only, so one step needs half of the difference.
    late = sum(max(0.0, ms) for ms in here.values()) - median(sum(v.values()) for v in there)
    return most_of(here, there, 2 * late)[0]


def function_excess(
    run: RankRun, others: Sequence[RankRun], late_ms: float
) -> tuple[FunctionExcess, ...]:
    """Return the functions that explain a delay of ``late_ms`` per step of the whole run."""
    # A rank that knows none of its functions does not spend no time in them.
    others = [other for other in others if other.program]
    if not others:
        return ()
    rows = []
    for place, function in run.program.items():
        usual = median([_ms(other, place) for other in others])
        if function.ms - usual >= EXPLAINS * late_ms > 0:
            rows.append((function.ms - usual, place, function, usual))
    rows.sort(key=lambda row: (-row[0], row[1]))
    return tuple(
        FunctionExcess(*place, function.ms, usual, _called(place, function.called, others, excess))
        for excess, place, function, usual in rows[:_FUNCTIONS]
    )


def _ms(run: RankRun, place: Place) -> float:
    found = run.program.get(place)
    return 0.0 if found is None else found.ms


def _called(
    place: Place, called: Mapping[str, float], others: Sequence[RankRun], excess: float
) -> str | None:
    for name, ms in called.items():
        there = [
            found.called.get(name, 0.0) if found is not None else 0.0
            for found in (other.program.get(place) for other in others)
        ]
        if name and ms - median(there) >= _MOST * excess:
            return name
    return None


def tells(run: RankRun, signal: str) -> bool:
    """Return whether a rank has the data that :func:`own_ms` needs; later windows may lack it."""
    steps = run.steps
    if steps is None or not steps.wall:
        return False
    if signal == "autograd":
        return steps.autograd is not None
    if signal == "cpu":
        return steps.cpu is not None
    if signal == "gpu":
        return steps.gpu_wait is not None or any(name == "gpu" for name, _ in run.row.waits)
    return True


def own_ms(run: RankRun, steps: RankSteps, signal: str, *, plain: bool = False) -> list[float]:
    """Return the own work of a rank in each of its steps; ``signal`` defines waiting.

    ``plain``: without the time in which its thread waited for a CPU.
    """
    own = _own_ms(run, steps, signal)
    if plain and steps.cpu_wait is not None:
        return [ms - wait for ms, wait in zip(own, steps.cpu_wait, strict=True)]
    return own


def _own_ms(run: RankRun, steps: RankSteps, signal: str) -> list[float]:
    waits = dict(run.row.waits)
    if signal == "none":
        return list(steps.wall)
    if signal == "cpu":
        return list(steps.cpu or ())
    if signal == "gpu":
        if steps.gpu_wait is None:  # known for the whole run only
            return [wall - waits["gpu"] for wall in steps.wall]
        return [wall - ms for wall, ms in zip(steps.wall, steps.gpu_wait, strict=True)]
    own = list(steps.wall)
    named = [column for name, column in steps.sections.items() if is_communication(name)]
    sections = [sum(values) for values in zip(*named, strict=True)] if named else [0.0] * len(own)
    whole = {name: steps.sections[name] for name in BACKWARD if name in steps.sections}
    counted = whole if signal == "backward" else {}
    if steps.communication is not None and not counted:
        told: Sequence[float] = steps.communication
    else:
        # Known for the whole run only; sections subtracted as a whole already contain theirs.
        rest = sum(
            ms
            for name, ms in run.waiting.items()
            if name not in counted and not is_communication(name)
        )
        told = [ms + rest for ms in sections]
    own = [ms - max(a, b) for ms, a, b in zip(own, sections, told, strict=True)]
    if signal == "autograd":
        own = [ms - engine for ms, engine in zip(own, steps.autograd or (), strict=True)]
    for column in counted.values():
        own = [ms - part for ms, part in zip(own, column, strict=True)]
    return own


def begin(lateness: Mapping[int, float], late_ms: float, step_ms: float) -> tuple[int, bool]:
    """Return the step at which a delay of ``late_ms`` began, and whether steps before it show that.

    Args:
        lateness: ms by step; not empty.
        late_ms: the mean delay.
        step_ms: the duration of a step.
    """
    first = onset(lateness, late_ms)
    return first, _is_shown(lateness, first, late_ms, step_ms)


def onset(lateness: Mapping[int, float], late_ms: float) -> int:
    """Return the step at which a delay began; the arguments are those of :func:`begin`.

    It is the largest CUSUM (Page, Biometrika 41, 1954) of a change from 0 to ``late_ms``.
    """
    best, total, found = 0.0, 0.0, max(lateness)
    for number in sorted(lateness, reverse=True):
        total += lateness[number] - late_ms / 2
        if total > best:
            best, found = total, number
    return found


def _is_shown(lateness: Mapping[int, float], first: int, late_ms: float, step_ms: float) -> bool:
    """Return whether the steps before ``first`` show that the delay began there."""
    before = [ms for number, ms in lateness.items() if number < first]
    if len(before) < _HEALTHY:
        return False
    # Noise alone can make a few steps of a late rank look healthy.
    error = stdev(before) / math.sqrt(len(before))
    return fmean(before) + 3.0 * error < min(late_ms / 2, LATE_SHARE * step_ms)
