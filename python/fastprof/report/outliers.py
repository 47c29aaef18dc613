"""The slowest steps, and their differences from usual steps.

The usual time is the mean of the steps that were not slow; a step is an outlier if it took more
than 1.5 times the median.  The recorder samples functions in windows of steps; if every window
contains a slow step, the mean of all other steps is the usual time.  For an outlier, every calling
context has its time and its usual time; functions and top-level sections sum up the difference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastprof.report.compilations import compile_report
from fastprof.report.figures import duration
from fastprof.report.notes import has_functions
from fastprof.report.outlier_rows import (
    SLOW,
    OutlierFunction,
    OutlierSection,
    Usual,
    by_name,
    function_rows,
    section_rows,
)
from fastprof.report.outlier_text import context_of, sentences
from fastprof.snapshot import Snapshot
from fastprof.snapshot.outliers import OutlierSnapshot, OutlierStep
from fastprof.snapshot.stages import Stage


@dataclass(frozen=True, slots=True)
class Outlier:
    """One step that was much slower than usual, as measured.

    ``index`` counts all steps from 0, ``start_ms`` counts from the start of the first step.
    ``sections`` add up to ``wall_ms``.  ``functions`` took longer than usual by at least 1 % of the
    step's extra time, longest first; they cover the last ``window_steps`` steps, including this
    one: more than one if the tree is too large to sample after each step, 0 if the recorder did not
    sample.  ``gc_ms``, ``cpu_ms`` and ``switches`` are None if unknown.  ``sentences`` describe the
    step in words.
    """

    index: int
    start_ms: float
    wall_ms: float
    typical_ms: float
    ratio: float
    sections: tuple[OutlierSection, ...]
    functions: tuple[OutlierFunction, ...]
    window_steps: int
    gc_ms: float | None
    cpu_ms: float | None
    switches: int | None
    sentences: tuple[str, ...]


def find_outliers(snapshot: Snapshot, median_ms: float | None) -> tuple[Outlier, ...]:
    """Return the kept steps that took more than 1.5 times ``median_ms``, slowest first.

    Of a run with stages, those that are slow in their stage.
    """
    kept = snapshot.outliers
    if kept is None or median_ms is None:
        return ()
    if snapshot.stages:
        return _in_stages(snapshot, kept, snapshot.stages)
    slow = [step for step in kept.kept if not step.plain and step.wall_ns > SLOW * median_ms * 1e6]
    if not slow:
        return ()
    usual = Usual(snapshot, kept, slow, median_ms)
    slow.sort(key=lambda step: (-step.wall_ns, step.index))
    return tuple(_outlier(snapshot, usual, step) for step in slow)


def _in_stages(
    snapshot: Snapshot, kept: OutlierSnapshot, stages: Sequence[Stage]
) -> tuple[Outlier, ...]:
    """Return the steps that are slow in their stage; the usual times of its functions are unknown.

    The recorder's usual values are those of all stages.
    """
    found = []
    for stage, end in zip(stages, [s.first for s in stages[1:]] + [None], strict=True):
        if not stage.timed:
            continue
        sections = {name: ns / stage.timed / 1e6 for name, ns in stage.sections}
        usual = _usual_of(snapshot, kept, stage.sum_ns / stage.timed / 1e6, sections)
        least_ns = SLOW * max(usual.wall_ms * 1e6, stage.p50_ns)
        found += [
            _outlier(snapshot, usual, step)
            for step in kept.kept
            if step.wall_ns > least_ns
            and stage.first <= step.index
            and (not end or step.index < end)
        ]
    return tuple(sorted(found, key=lambda row: (-row.wall_ms, row.index)))


def find_plain_outliers(
    snapshot: Snapshot,
    median_ms: float | None,
    mean_ms: float,
    sections: Mapping[str, float],
    were_off: frozenset[str] = frozenset(),
) -> tuple[Outlier, ...]:
    """Return the same of the steps without the function hook; no function of them is known.

    Args:
        snapshot: its steps are the plain ones.
        mean_ms: the time of a plain step.
        sections: that of its top-level sections in ms.
        were_off: sections that some of these steps did not time; in all others they are.
    """
    kept = snapshot.outliers
    if kept is None or median_ms is None or snapshot.stages:
        return ()
    usual = _usual_of(snapshot, kept, mean_ms, sections)
    return tuple(
        _outlier(snapshot, usual, step, were_off)
        for step in sorted(kept.kept, key=lambda step: (-step.wall_ns, step.index))
        if step.plain and step.wall_ns > SLOW * median_ms * 1e6
    )


def _usual_of(
    snapshot: Snapshot, kept: OutlierSnapshot, wall_ms: float, sections: Mapping[str, float]
) -> "Usual":
    """Return usual times that the recorder's sums do not have."""
    usual = Usual(snapshot, kept, (), wall_ms)
    usual.wall_ms, usual.sections = wall_ms, dict(sections)
    usual.row_steps = usual.steps = 0
    return usual


def _outlier(
    snapshot: Snapshot,
    usual: Usual,
    step: OutlierStep,
    were_off: frozenset[str] = frozenset(),
) -> Outlier:
    wall_ms = step.wall_ns / 1e6
    context = context_of(snapshot, step.index)
    if not were_off.isdisjoint(by_name(snapshot, step.sections)):
        were_off = frozenset()  # not in this step
    sections = section_rows(snapshot, usual, step, were_off)
    functions = function_rows(snapshot, usual, step) if usual.known(step) else ()
    return Outlier(
        index=step.index,
        start_ms=step.start_ns / 1e6,
        wall_ms=wall_ms,
        typical_ms=usual.wall_ms,
        ratio=wall_ms / usual.wall_ms if usual.wall_ms else 0.0,
        sections=sections,
        functions=functions,
        window_steps=step.window_steps,
        gc_ms=context.gc_ms,
        cpu_ms=context.cpu_ms,
        switches=None if context.switches is None else round(context.switches),
        sentences=sentences(
            step,
            usual.wall_ms,
            sections,
            functions if has_functions(snapshot) else (),
            context,
            usual.known(step),
            "in no section that was on" if were_off else "outside of sections",
        )
        + _compiled(snapshot, step.index),
    )


def _compiled(snapshot: Snapshot, step: int) -> tuple[str, ...]:
    """Return a sentence if the step compiled a function again; that is not in its time."""
    report = compile_report(snapshot)
    for index, ms, names in () if report is None else report.by_step:
        if index == step and names:
            what = ", ".join(names[:3])
            return (f"it compiled {what} again ({duration(ms)}, not in its time)",)
    return ()


# ---- the series' data on one step ----


# ---- rows ----


# ---- words ----
