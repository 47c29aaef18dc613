"""Tests whether a change of a time per step is more than chance.

One run per side: the block bootstrap over steps, see :mod:`~.bootstrap`.  Where neighbouring steps
depend on each other too long for that, 8 batches and Student's t, see :mod:`~.batches`, which finds
large changes only.  Both see how steps vary within these two runs, but not what makes one run of
the same program slower than the next (memory layout, clock frequency).  So a change of up to
``noise`` counts as none, and so does the time that other programs on the machine may have taken
from the steps.  Several runs per side: Welch's t test over the runs' means, which do show that
variation.

Holm's method corrects all rows of a comparison together: the chance that a comparison of two equal
sides names any row at all is at most 1 - level.  Functions are many and exploratory, so they use
Benjamini's and Hochberg's method: at most that share of the named ones is named wrongly.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, mean, variance

from fastprof.comparison.model import FASTER, NO_CHANGE, NOT_TESTED, SLOWER, Effect, MedianChange
from fastprof.comparison.stats import batches, quantiles
from fastprof.comparison.stats.blocks import blocks_of
from fastprof.comparison.stats.bootstrap import DRAWS, Difference, difference_of_means
from fastprof.report.figures import duration
from fastprof.report.student import critical, two_sided_p
from fastprof.snapshot.steps import MAX_SERIES

#: The probability that a change of the detectable size is found.
_POWER = 0.8
#: The cost of recording is named if its difference is this part of what counts as no change.
_MUCH = 0.5
#: Draws take a microsecond per block.
_MOST_DRAWS = 100_000
#: An interval that extends by this many times the longer of both times tells nothing.
_WIDEST = 10.0


@dataclass(frozen=True, slots=True)
class Recording:
    """What recording costs per step, before and after: ``ms``; ``most``: the cost is a limit."""

    ms: tuple[float, float] = (0.0, 0.0)
    most: tuple[bool, bool] = (False, False)

    @property
    def difference_ms(self) -> float:
        """The difference of the sides, which is no change of the program."""
        return abs(self.ms[1] - self.ms[0])

    @property
    def texts(self) -> tuple[str, str]:
        """The costs as text: ``at most 5.00 ms`` where only a limit is known."""
        before, after = (
            f"{'at most ' if most else ''}{duration(ms)}"
            for ms, most in zip(self.ms, self.most, strict=True)
        )
        return before, after


#: Recording costs nothing, or it is unknown.
_NO_COST = Recording()


@dataclass(frozen=True, slots=True)
class Series:
    """One row of one run: ms per step, settled steps only, and the number of those left out.

    ``of`` is the number of all steps of the run, those of its warm-up included; 0: unknown.
    """

    values: Sequence[float]
    left_out: int
    of: int = 0

    def steps_for(self, wanted: int) -> int:
        """Return how many steps the run would need for ``wanted`` settled ones."""
        kept = len(self.values) + self.left_out
        each = max(1.0, self.of / kept) if kept else 1.0
        return math.ceil(each * (wanted + self.left_out))


def effect_of_sides(
    name: str,
    kind: str,
    before: Sequence[Series],
    after: Sequence[Series],
    *,
    level: float,
    noise: float,
    lost_ms: float,
    recording: Recording,
    rows: int,
) -> Effect:
    """Return the change of a time per step, with one series per run.

    One run per side is tested by its steps: the arguments are those of :func:`effect_of_steps`.
    Several runs are tested by their means, whose spread shows what ``noise`` and ``lost_ms`` allow
    for.
    """
    if len(before) == len(after) == 1:
        return effect_of_steps(
            name, kind, before[0], after[0], level=level, noise=noise, lost_ms=lost_ms,
            recording=recording, rows=rows,
        )  # fmt: skip
    means = [[sum(s.values) / len(s.values) for s in side] for side in (before, after)]
    return effect_of_runs(name, kind, *means, level=level, recording=recording)


def effect_of_steps(
    name: str,
    kind: str,
    before: Series,
    after: Series,
    *,
    level: float,
    noise: float,
    lost_ms: float = 0.0,
    recording: Recording = _NO_COST,
    rows: int = 1,
    draws: int | None = None,
) -> Effect:
    """Return the change of a time per step between two runs.

    Args:
        level: the interval's level.
        noise: the part of the time before that counts as no change.
        lost_ms: time per step that other programs may have taken, which counts as no change either.
        recording: what recording costs; the difference of the sides is no change.
        rows: number of rows that are tested together.
        draws: draws of the bootstrap; None: as many as needed.
    """
    steps = (len(before.values), len(after.values))
    fact = Effect(
        name, kind, steps, *_means(before.values, after.values),
        left_out=(before.left_out, after.left_out),
    )  # fmt: skip
    margin = noise * (fact.before_ms or 0.0) + lost_ms + recording.difference_ms
    if min(steps) < batches.FEWEST_STEPS:
        few = f"too few steps: {min(steps)}, at least {batches.FEWEST_STEPS} are needed"
        if before.of and after.of:
            few += f" (fastprof run --steps {_longer(before, after, (batches.FEWEST_STEPS,) * 2)})"
        return withdrawn(fact, few)
    a, b = blocks_of(before.values), blocks_of(after.values)
    lengths, wanted = (a.length, b.length), None
    if a.enough and b.enough:
        found = difference_of_means(
            before.values,
            after.values,
            (a, b),
            level=level,
            seed=zlib.crc32(name.encode("utf-8", "surrogatepass")),
            margin=margin,
            # Holm's method multiplies the smallest p, which is one by the draws, by the rows.
            draws=draws or max(DRAWS, min(_MOST_DRAWS, math.ceil(2 * rows / (1 - level)))),
        )
    else:
        found = of_batches(before.values, after.values, level=level, margin=margin)
        lengths = steps[0] // batches.BATCHES, steps[1] // batches.BATCHES
        # Twice as many where more are needed, lest the next comparison asks for a few more again.
        x = 0 if a.enough else max(a.wanted, 2 * steps[0])
        y = 0 if b.enough else max(b.wanted, 2 * steps[1])
        wanted = _longer(before, after, (x, y))
    if not _known(fact, found):
        return withdrawn(fact, "nearly all of this time is in a few steps")
    middles = [
        quantiles.quantile(series.values, 0.5, blocks, level)
        for series, blocks in ((before, a), (after, b))
    ]
    moved = quantiles.difference(*middles)
    return replace(
        _tested(fact, found, margin, recording),
        blocks=lengths,
        wanted=wanted,
        median=MedianChange(
            middles[0].estimate, middles[1].estimate, moved.estimate, moved.low, moved.high
        ),
    )


def effect_of_runs(
    name: str,
    kind: str,
    before: Sequence[float],
    after: Sequence[float],
    *,
    level: float,
    recording: Recording = _NO_COST,
) -> Effect:
    """Return the change of a time per step between several runs per side, from their means."""
    fact = Effect(name, kind, (len(before), len(after)), *_means(before, after))
    margin = recording.difference_ms
    found = welch(before, after, level=level, margin=margin)
    if found is None:
        return withdrawn(fact, "one run on each side")
    if not _known(fact, found):
        return withdrawn(fact, "the runs of one side differ too much from each other")
    return _tested(fact, found, margin, recording)


def welch(
    before: Sequence[float], after: Sequence[float], *, level: float, margin: float = 0.0
) -> Difference | None:
    """Return the difference of the means by Welch's t test; None with one run per side.

    A side of one run gets the variance of the other side.  A difference of ``margin`` is none.
    """
    n, m = len(before), len(after)
    if max(n, m) < 2:
        return None
    estimate = mean(after) - mean(before)
    if min(n, m) == 1:
        several = before if n > 1 else after
        x, y = variance(several) / n, variance(several) / m
        df = len(several) - 1.0
    else:
        x, y = variance(before) / n, variance(after) / m
        df = (x + y) ** 2 / (x**2 / (n - 1) + y**2 / (m - 1)) if x + y > 0 else n + m - 2.0
    return _by_student(estimate, (x, y), df, abs(mean(before)), level=level, margin=margin)


def of_batches(
    before: Sequence[float], after: Sequence[float], *, level: float, margin: float = 0.0
) -> Difference:
    """Return the difference of the means of two series that are short for their dependence."""
    x, y = batches.variance_of_mean(before), batches.variance_of_mean(after)
    df = batches.BATCHES - 1.0
    if x + y > 0:
        df *= (x + y) ** 2 / (x**2 + y**2)
    estimate, scale = mean(after) - mean(before), max(abs(mean(before)), abs(mean(after)))
    return _by_student(estimate, (x, y), df, scale, level=level, margin=margin)


def _by_student(
    estimate: float,
    variances: tuple[float, float],
    df: float,
    scale: float,
    *,
    level: float,
    margin: float,
) -> Difference:
    """Return the difference of two means, whose errors relative to ``scale`` may be rounding."""
    error = math.sqrt(sum(variances))
    beyond = max(0.0, abs(estimate) - margin)
    if error <= 1e-12 * scale:
        same = beyond <= 1e-9 * scale
        return Difference(estimate, 0.0, estimate, estimate, 1.0 if same else 0.0, 0.0)
    limit = critical(level, df)
    return Difference(
        estimate,
        error,
        estimate - limit * error,
        estimate + limit * error,
        two_sided_p(beyond / error, df),
        limit,
        math.sqrt(variances[0]),
    )


def _longer(before: Series, after: Series, wanted: tuple[int, int]) -> int:
    """Return the steps of both runs for which each has as many settled ones as it needs."""
    needed = (side.steps_for(n) for side, n in zip((before, after), wanted, strict=True))
    return max(needed)


def _in_percent(before: float, found: Difference) -> tuple[float | None, float | None]:
    """Return the interval of the difference over the time before, by Fieller's theorem.

    (Journal of the Royal Statistical Society B 16, 1954.)  With the limit of the difference's own
    interval both exclude 0, or neither.  None: the time before may be 0.
    """
    squared = found.limit**2
    blur = squared * found.before_error**2
    slope = before**2 - blur
    if slope <= 0:
        return None, None
    middle = found.estimate * before + blur
    rest = found.estimate**2 - squared * found.error**2
    reach = math.sqrt(max(0.0, middle**2 - slope * rest))
    return (middle - reach) / slope, (middle + reach) / slope


def decide(effects: Sequence[Effect], *, level: float) -> tuple[Effect, ...]:
    """Return the tested rows with their verdicts, corrected for all of them together (Holm)."""
    tested = [i for i, effect in enumerate(effects) if effect.p is not None]
    adjusted = holm([effects[i].p or 0.0 for i in tested])
    out = list(effects)
    for i, p in zip(tested, adjusted, strict=True):
        out[i] = _verdict(effects[i], p, level)
    return tuple(out)


def _verdict(effect: Effect, p: float, level: float) -> Effect:
    estimate = effect.difference_ms or 0.0
    if p <= 1 - level and estimate:
        return replace(effect, p_adjusted=p, verdict=SLOWER if estimate > 0 else FASTER, reason="")
    reason = ""
    known = effect.low_ms is not None and effect.high_ms is not None
    if known and effect.margin_ms and (effect.low_ms or 0.0) * (effect.high_ms or 0.0) > 0:
        surely = "" if abs(estimate) <= effect.margin_ms else "surely "
        reason = (
            f"these runs differ, but not {surely}by more than the {duration(effect.margin_ms)} "
            "by which runs of the same program may differ"
        )
        if effect.reason:
            reason += f" ({effect.reason})"
    elif known and (effect.low_ms or 0.0) * (effect.high_ms or 0.0) > 0:
        reason = "among several rows, chance makes one differ as much"
    elif effect.wanted is not None:
        remedy = f"fastprof run --steps {effect.wanted}"
        if effect.wanted > MAX_SERIES:  # steps that no run keeps
            remedy = "several runs per side"
        reason = (
            "neighbouring steps may be similar, and these are few: "
            f"{remedy} would find smaller changes"
        )
    return replace(effect, p_adjusted=p, verdict=NO_CHANGE, reason=reason)


def holm(values: Sequence[float]) -> list[float]:
    """Return p values adjusted by Holm's method (Scandinavian Journal of Statistics 6, 1979)."""
    out = [0.0] * len(values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        largest = max(largest, min(1.0, (len(values) - rank) * values[i]))
        out[i] = largest
    return out


def benjamini_hochberg(values: Sequence[float]) -> list[float]:
    """Return p values adjusted for the false discovery rate (JRSS B 57, 1995)."""
    n = len(values)
    out = [0.0] * n
    smallest = 1.0
    for rank, i in reversed(list(enumerate(sorted(range(n), key=lambda i: values[i]), 1))):
        smallest = min(smallest, values[i] * n / rank)
        out[i] = smallest
    return out


def _means(
    before: Sequence[float], after: Sequence[float]
) -> tuple[float | None, float | None, float | None]:
    a = math.fsum(before) / len(before) if before else None
    b = math.fsum(after) / len(after) if after else None
    return a, b, None if a is None or b is None else b - a


def withdrawn(effect: Effect, reason: str) -> Effect:
    """Return the row as not tested."""
    return replace(effect, p=None, detectable_ms=None, verdict=NOT_TESTED, reason=reason)


def _known(effect: Effect, found: Difference) -> bool:
    """Return whether an interval is usable: not many times as wide as the times are long."""
    widest = _WIDEST * max(effect.before_ms or 0.0, effect.after_ms or 0.0)
    return math.isfinite(found.limit) and found.limit * found.error <= widest


def _tested(effect: Effect, found: Difference, margin: float, recording: Recording) -> Effect:
    reason = ""
    if recording.difference_ms > _MUCH * margin:
        reason = "recording takes {} before, {} after".format(*recording.texts)
    low, high = _in_percent(effect.before_ms or 0.0, found)
    return replace(
        effect,
        change_low=low,
        change_high=high,
        difference_ms=found.estimate,
        low_ms=found.low,
        high_ms=found.high,
        p=found.p,
        reason=reason,
        margin_ms=margin,
        detectable_ms=margin + (found.limit + NormalDist().inv_cdf(_POWER)) * found.error,
    )
