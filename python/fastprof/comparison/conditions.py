"""``--fail-if``: conditions on a comparison, for continuous integration.

A change (``step>+3%``) is met if it is beyond the limit **and**, of a figure with statistics, more
than chance; the figures without any decide themselves, and the result says so.  If the steps cannot
decide, the step's CPU time may; else the condition is undecided.  A condition without a sign
(``gpu_util<80%``) is about the side after alone.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from fastprof.comparison.expressions import (
    BYTES,
    COMPARE,
    NUMBER,
    POINTS,
    RELATIVE,
    SHARE,
    TIME,
    Condition,
    Name,
)
from fastprof.comparison.figures import figure
from fastprof.comparison.model import Effect, Pair
from fastprof.comparison.runs import RANKS, STEP, Run, ranks_of_one_job, recording, recording_ms
from fastprof.comparison.stats.blocks import FEWEST_STEPS, blocks_of
from fastprof.comparison.stats.quantiles import difference, quantile
from fastprof.comparison.stats.significance import decide, effect_of_sides, welch
from fastprof.errors import ConditionError
from fastprof.report.figures import (
    change,
    chosen_percent,
    counted,
    duration,
    p_text,
    signed,
    size,
    with_percent,
)
from fastprof.report.phase_names import ALIASES

#: A section whose entries per step differ by at most this from one has one in each.
_ONCE = 0.05

#: A change beyond the limit that chance alone would show less often than this is not excluded.
_UNLIKELY = 0.2

#: Figures with a smaller relative difference could look the same with three digits.
_CLOSE = 0.02

_QUANTILES = {"median": 0.5, "p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A condition and whether it is met; None: the runs cannot decide it; ``text`` is why."""

    condition: str
    met: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class _Moved:
    """A figure before and after; ``real`` is None if it cannot be tested at all.

    ``cpu`` is the row that decides instead if this one cannot.
    """

    before: float
    after: float
    kind: str
    real: bool | None
    decided: bool
    why: str
    cpu: Effect | None = None


def outcome(
    condition: Condition,
    before: Sequence[Run],
    after: Sequence[Run],
    pair: Pair,
    *,
    level: float,
    noise: float,
) -> Outcome:
    """Return whether a condition is met.

    Raises:
        ConditionError: (a ValueError) it needs data that was not recorded, or has a wrong unit.
    """
    if not condition.is_change:
        return _of_one_run(condition, after)
    name = condition.value
    moved = _moved(name, before, after, pair, level=level, noise=noise)
    change, shown = _change(condition, moved)
    beyond = COMPARE[condition.operator](change, condition.limit)
    text = (
        f"{name.text} {_show(moved.before, moved.kind)} -> {_show(moved.after, moved.kind)} "
        f"({shown}); {moved.why}"
    )
    if not beyond:
        return Outcome(condition.text, False, text)
    if not moved.decided:
        said = _said_by_cpu(condition, moved)
        return Outcome(condition.text, True if said else None, text + said)
    return Outcome(condition.text, moved.real is not False, text)


def _of_one_run(condition: Condition, runs: Sequence[Run]) -> Outcome:
    """Return whether the means over several runs meet a condition without a sign."""
    found = [figure(run, condition.value) for run in runs]
    value, kind = sum(value for value, _ in found) / len(found), found[0][1]
    if condition.kind == SHARE and kind != SHARE:
        raise _unsigned_percentage(condition, runs[0])
    if kind != condition.kind and {kind, condition.kind} != {NUMBER, SHARE}:
        raise ConditionError(
            f"{condition.text!r} compares {_called(kind)} with {_called(condition.kind)}"
        )
    close = abs(value - condition.limit) < _CLOSE * abs(condition.limit)
    shown = (_show_exactly if close else _show)(value, kind)
    met = COMPARE[condition.operator](value, condition.limit)
    return Outcome(condition.text, met, f"after: {condition.value.text} is {shown}")


def _unsigned_percentage(condition: Condition, run: Run) -> ConditionError:
    """Return the error for ``step>3%``: who leaves out the sign means a change, not a share."""
    left, op, right = condition.value_text, condition.operator, condition.limit_text
    remedy = f"write {left}{op}{'-' if '<' in op else '+'}{right} for a change"
    with suppress(ConditionError):
        if not condition.value.function and figure(run, Name("share", condition.value.name)):
            remedy += f", or share({left}){op}{right} for its part of a step"
    return ConditionError(f"{condition.text!r} has a percentage without a sign: {remedy}")


def _show(value: float, kind: str) -> str:
    """Return a figure with its unit."""
    return {TIME: duration, SHARE: with_percent, BYTES: size}.get(kind, counted)(value)


def _show_exactly(value: float, kind: str) -> str:
    """Return a figure with enough digits to show why a condition is met or not."""
    unit, name = {TIME: (1.0, " ms"), SHARE: (0.01, " %"), BYTES: (2.0**20, " MiB")}.get(
        kind, (1.0, "")
    )
    return f"{value / unit:.6g}{name}"


def _called(kind: str) -> str:
    return {
        TIME: "a time (write its unit, e.g. 5ms)",
        SHARE: "a share",
        BYTES: "memory (write its unit, e.g. 2GiB)",
        NUMBER: "a plain number",
    }[kind]


def _change(condition: Condition, moved: _Moved) -> tuple[float, str]:
    """Return the change in the limit's unit, and its text."""
    step = moved.after - moved.before
    if condition.kind == RELATIVE:
        if not moved.before:
            raise ConditionError(f"{condition.text!r}: it was 0 before, which has no percentage")
        return step / moved.before, change(step / moved.before)
    wanted = {POINTS: SHARE}.get(condition.kind, condition.kind)
    if wanted != moved.kind:
        units = {TIME: "ms", SHARE: "points", BYTES: "MiB", NUMBER: "no unit"}
        raise ConditionError(
            f"{condition.text!r}: a change of that figure is given in % or {units[moved.kind]}"
        )
    sign = "+" if step >= 0 else "-"
    if wanted == SHARE:
        return step, f"{signed(100 * step)} points"
    return step, sign + _show(abs(step), moved.kind)


def _said_by_cpu(condition: Condition, moved: _Moved) -> str:
    """Return how the step's CPU time alone moved beyond the limit; empty: it did not surely."""
    cpu = moved.cpu
    if cpu is None or not cpu.significant:
        return ""
    nearest = cpu.low_ms if (cpu.difference_ms or 0.0) > 0 else cpu.high_ms
    if nearest is None:
        return ""
    step = nearest / moved.before if condition.kind == RELATIVE else nearest
    if not COMPARE[condition.operator](step, condition.limit):
        return ""
    return (
        f"; but its CPU time alone changed by {signed(nearest)} ms or more: "
        f"{duration(cpu.before_ms)} -> {duration(cpu.after_ms)}, p {p_text(cpu.p_adjusted or 0.0)}"
    )


def _moved(
    name: Name, before: Sequence[Run], after: Sequence[Run], pair: Pair, *,
    level: float, noise: float,
) -> _Moved:  # fmt: skip
    effect = _effect(name, pair)
    if effect is not None:
        moved = _of_effect(effect)
        return replace(moved, cpu=_cpu(pair)) if effect is pair.step else moved
    if name.name == "throughput" and name.function in ("", "mean") and pair.step is not None:
        return _throughput(pair, pair.step, before, after, level=level, noise=noise)
    margin, by_steps = 0.0, False
    if name.function in _QUANTILES:
        section = f"section {name.name}", f"section {ALIASES.get(name.name, name.name)}"
        keys = (STEP,) if name.name == "step" else section
        margin = abs(recording_ms(after, keys) - recording_ms(before, keys))
        by_steps = all(_one_per_step(run, name, keys) for run in (*before, *after))
        if by_steps and len(before) == len(after) == 1:
            doubted = any(run.left_out is None or run.busy for run in (before[0], after[0]))
            doubt = pair.step.reason if pair.step and doubted else ""
            return _of_quantile(name, keys, before[0], after[0], level, noise, margin, doubt)
    sides = [[figure(run, name) for run in side] for side in (before, after)]
    kind = sides[0][0][1]
    x, y = ([value for value, _ in side] for side in sides)
    middles = (sum(x) / len(x), sum(y) / len(y))
    ranks = ranks_of_one_job(before, after)
    if ranks and by_steps:  # the steps of a run would decide
        return _Moved(*middles, kind, None, False, f"not tested: {RANKS}")
    found = None if ranks else welch(x, y, level=level, margin=margin)
    if found is None:
        return _Moved(*middles, kind, None, True, "not tested, the figures themselves decide")
    real = found.p <= 1 - level
    why = f"{'significant' if real else 'not significant'} over the runs (p {p_text(found.p)})"
    return _Moved(*middles, kind, real, True, why)


def _effect(name: Name, pair: Pair) -> Effect | None:
    if name.function not in ("", "mean", "section"):
        return None
    if name.name == "step" and name.function != "section":
        return pair.step
    if name.name == "cpu" and name.function == "":
        return _cpu(pair)
    if name.function == "mean":  # over single entries, not over steps
        return None
    names = (name.name, ALIASES.get(name.name, name.name))
    sections = {e.name: e for e in pair.effects if e.kind == "section"}
    return next((sections[n] for n in names if n in sections), None)


def _cpu(pair: Pair) -> Effect | None:
    return next((e for e in pair.effects if e.kind == "cpu"), None)


def _throughput(
    pair: Pair, step: Effect, before: Sequence[Run], after: Sequence[Run], *,
    level: float, noise: float,
) -> _Moved:  # fmt: skip
    """Return the throughput; the samples of a step are known, so the times of steps decide."""
    row = next(row for row in pair.summary if row.name == "Throughput")
    values = row.change.before or 0.0, row.change.after or 0.0
    if step.p_adjusted is None:
        return _Moved(*values, NUMBER, None, False, f"step: not tested: {step.reason}")
    more = 1.0
    if values[0]:
        more = values[1] * (step.after_ms or 0.0) / (values[0] * (step.before_ms or 1.0))
    if abs(more - 1.0) < 1e-6:  # a step has as many samples as before
        moved = _of_effect(step)
        return _Moved(*values, NUMBER, moved.real, moved.decided, f"step: {moved.why}")
    alike = _step_of_as_many(pair, before, after, more, level=level, noise=noise)
    moved = _of_effect(alike)
    why = f"the samples of a step change by the factor {more:.3g}; time for as many: {moved.why}"
    return _Moved(*values, NUMBER, moved.real, moved.decided, why)


def _step_of_as_many(
    pair: Pair, before: Sequence[Run], after: Sequence[Run], more: float, *,
    level: float, noise: float,
) -> Effect:  # fmt: skip
    """Return the change of the step if a step before had ``more`` times as many samples."""
    x = [replace(s, values=[more * ms for ms in s.values])
         for s in (run.series[STEP] for run in before)]  # fmt: skip
    y = [run.series[STEP] for run in after]
    cost = recording(before, after, (STEP,))
    cost = replace(cost, ms=(more * cost.ms[0], cost.ms[1]))
    lost_ms = max(*(more * run.lost_ms for run in before), *(run.lost_ms for run in after))
    effect = effect_of_sides(
        STEP, STEP, x, y, level=level, noise=noise, lost_ms=lost_ms, recording=cost,
        rows=len(pair.effects),
    )  # fmt: skip
    rows = [effect if row is pair.step else row for row in pair.effects]
    return decide(rows, level=level)[rows.index(effect)]


def _of_effect(effect: Effect) -> _Moved:
    before, after = effect.before_ms or 0.0, effect.after_ms or 0.0
    if effect.p_adjusted is None:
        return _Moved(before, after, TIME, None, False, f"not tested: {effect.reason}")
    why = f"{effect.verdict} (p {p_text(effect.p_adjusted)})"
    # An interval without 0 leaves the allowance, which counts as no change.
    around_0 = (effect.low_ms or 0.0) <= 0 <= (effect.high_ms or 0.0)
    decided = effect.significant or not around_0 or (effect.p or 0.0) > _UNLIKELY
    if not decided and effect.reason:
        why += f": {effect.reason}"
    return _Moved(before, after, TIME, effect.significant, decided, why)


def _one_per_step(run: Run, name: Name, keys: Sequence[str]) -> bool:
    """Return whether the values of a row's steps are those of its single entries."""
    if all(key not in run.series for key in keys):
        return False
    return keys == (STEP,) or abs(figure(run, Name("count", name.name))[0] - 1) <= _ONCE


def _of_quantile(
    name: Name, keys: Sequence[str], before: Run, after: Run, level: float, noise: float,
    recording: float, doubt: str,
) -> _Moved:  # fmt: skip
    """Return a quantile of the step, or of a top-level section with one entry per step."""
    intervals = []
    for run in (before, after):
        row = next(run.series[key] for key in keys if key in run.series)
        if len(row.values) < FEWEST_STEPS:
            here, there = (figure(side, name)[0] for side in (before, after))
            return _Moved(here, there, TIME, None, False, "too few steps")
        blocks = blocks_of(row.values)
        intervals.append(quantile(row.values, _QUANTILES[name.function], blocks, level))
    found = difference(*intervals)
    values = (intervals[0].estimate, intervals[1].estimate)
    if doubt:
        return _Moved(*values, TIME, None, False, f"not tested: {doubt}")
    if found.low is None or found.high is None:
        return _Moved(*values, TIME, None, False, "too few steps for this quantile")
    margin = noise * values[0] + max(before.lost_ms, after.lost_ms) + recording
    real = found.low > margin or found.high < -margin
    why = f"{chosen_percent(level)} interval {signed(found.low)} to {signed(found.high)} ms"
    return _Moved(*values, TIME, real, True, why)
