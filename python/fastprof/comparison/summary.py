"""The block of main figures: throughput, GPU, memory and step time, before and after.

And how even the steps are: coefficients of variation (standard deviation over mean).
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, pstdev

from fastprof.comparison.model import Change, Effect, SummaryRow
from fastprof.comparison.runs import STEP, Run, recording
from fastprof.report.figures import counted, duration, number, size_of, with_percent

#: Part of a step from which the cost of recording has a row.
_WORTH = 0.01


def summary(
    before: Sequence[Run], after: Sequence[Run], effects: Iterable[Effect]
) -> tuple[SummaryRow, ...]:
    """Return the rows with a figure on at least one side."""
    step = next((effect for effect in effects if effect.kind == "step"), None)
    times = (
        (step.before_ms, step.after_ms)
        if step is not None
        else (_mean(before, _step_ms), _mean(after, _step_ms))
    )
    rates = [
        None if ms is None or not ms else 1e3 / ms * (samples if samples is not None else 1.0)
        for ms, samples in zip(times, _samples(before, after), strict=True)
    ]
    unit = "steps/s" if None in _samples(before, after) else "samples/s"
    rows = (
        _row("Throughput", unit, rates, lambda v: f"{number(v)} {unit}"),
        _row("GPU util", "%", _both(before, after, lambda run: run.gpu_util), with_percent),
        _memory(before, after),
        _row("Step time", "ms", times, duration),
        _recording(before, after),
        _row("Compilations", "", _both(before, after, _compiled), counted),
        _row("of them again", "", _both(before, after, _compiled_again), counted),
        _row("Compiling", "ms", _both(before, after, _compiling_ms), duration),
    )
    return tuple(row for row in rows if row.before_text or row.after_text)


def uniformity(before: Sequence[Run], after: Sequence[Run]) -> tuple[SummaryRow, ...]:
    """Return the variation of steps and memory, as far as both sides have it."""
    rows = (
        _row("step time, std/mean", "%", _both(before, after, _step_cv), with_percent),
        _row("step time, p99 / p50", "", _both(before, after, _tail), number),
        _row("memory of a step, std/mean", "%", _both(before, after, _memory_cv), with_percent),
    )
    return tuple(row for row in rows if row.before_text and row.after_text)


def _step_cv(run: Run) -> float | None:
    return _cv(run.series[STEP].values) if STEP in run.series else run.report.shown_steps.cv


def _tail(run: Run) -> float | None:
    steps = run.report.shown_steps
    return steps.p99_ms / steps.p50_ms if steps.p99_ms and steps.p50_ms else None


def _memory_cv(run: Run) -> float | None:
    samples = () if run.report.memory is None else run.report.memory.samples
    return _cv([float(sample.peak_allocated) for sample in samples])


def _cv(values: Sequence[float]) -> float | None:
    mean = fmean(values) if len(values) > 1 else 0.0
    return pstdev(values, mean) / mean if mean > 0 else None


def _row(
    name: str, unit: str, values: Iterable[float | None], text: Callable[[float], str]
) -> SummaryRow:
    before, after = values
    return SummaryRow(
        name,
        unit,
        Change(before, after),
        "" if before is None else text(before),
        "" if after is None else text(after),
    )


def _memory(before: Sequence[Run], after: Sequence[Run]) -> SummaryRow:
    used = [_mean(side, lambda run: run.memory and run.memory[0]) for side in (before, after)]
    texts = []
    for side, value in zip((before, after), used, strict=True):
        total = side[0].memory[1] if side[0].memory else None
        texts.append("" if value is None else size_of(value, total))
    return SummaryRow("Memory", "bytes", Change(*used), *texts)


def _recording(before: Sequence[Run], after: Sequence[Run]) -> SummaryRow:
    """Return what recording costs in a step, if it is worth a line."""
    cost = recording(before, after, (STEP,))
    known = [any(STEP in run.recording_ms for run in side) for side in (before, after)]
    costs = tuple(ms if k else None for ms, k in zip(cost.ms, known, strict=True))
    steps = _both(before, after, _step_ms)
    worth = any(c and ms and c >= _WORTH * ms for c, ms in zip(costs, steps, strict=True))
    shown = costs if worth else (None, None)
    texts = ("" if ms is None else said for ms, said in zip(shown, cost.texts, strict=True))
    return SummaryRow("of it recording", "ms", Change(*shown), *texts)


def _samples(before: Sequence[Run], after: Sequence[Run]) -> tuple[float | None, float | None]:
    a, b = _both(before, after, lambda run: run.samples_per_step)
    return (a, b) if a is not None and b is not None else (None, None)


def _both(
    before: Sequence[Run], after: Sequence[Run], figure: Callable[[Run], float | None]
) -> tuple[float | None, float | None]:
    return _mean(before, figure), _mean(after, figure)


def _mean(side: Sequence[Run], figure: Callable[[Run], float | None]) -> float | None:
    values = [value for run in side if (value := figure(run)) is not None]
    return sum(values) / len(values) if values else None


def _compiled(run: Run) -> float | None:
    found = run.report.compilations
    return float(found.times) if found is not None and found.rows else None


def _compiled_again(run: Run) -> float | None:
    found = run.report.compilations
    return float(found.again) if found is not None and found.rows else None


def _compiling_ms(run: Run) -> float | None:
    found = run.report.compilations
    return found.ms if found is not None and found.rows else None


def _step_ms(run: Run) -> float | None:
    return run.report.shown_steps.mean_ms
