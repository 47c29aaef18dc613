"""The table of steps: the time of one, and its top-level sections."""

from __future__ import annotations

from fastprof.report.in_run import unprofiled_step
from fastprof.report.outliers import find_outliers
from fastprof.report.rows import UNACCOUNTED, StepSection, StepTable
from fastprof.report.stats import (
    QUANTILES,
    coefficient_of_variation,
    exact_quantiles,
    histogram_quantiles,
)
from fastprof.report.steps import series_view, split_rows
from fastprof.snapshot import Snapshot, Steps


def step_table(snapshot: Snapshot) -> StepTable:
    steps = snapshot.steps
    n = steps.measured
    if n == 0:
        return StepTable(steps.count, steps.skipped, *(None,) * 8, rows=(), apart=steps.apart)
    if len(steps.recent_ns) == n:  # the snapshot has all of them
        quantiles = exact_quantiles(steps.recent_ns, QUANTILES)
    else:
        quantiles = histogram_quantiles(steps.hist, QUANTILES, low=steps.min_ns, high=steps.max_ns)
    p50, p95, p99 = (None if q is None else q / 1e6 for q in quantiles)
    return StepTable(
        count=steps.count,
        skipped=steps.skipped,
        wall_ns=steps.sum_ns,
        mean_ms=steps.sum_ns / n / 1e6,
        min_ms=steps.min_ns / 1e6,
        max_ms=steps.max_ns / 1e6,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        cv=coefficient_of_variation(n, steps.sum_ns, steps.sum_sq),
        rows=_step_rows(snapshot, steps, n),
        outliers=find_outliers(snapshot, p50),
        series=series_view(snapshot),
        split=split_rows(snapshot),
        split_missing=steps.split_missing,
        gc_runs=steps.gc_runs,
        apart=steps.apart,
        unprofiled=unprofiled_step(snapshot),
    )


def _step_rows(snapshot: Snapshot, steps: Steps, n: int) -> tuple[StepSection, ...]:
    totals: dict[str, tuple[int, int]] = {}
    for row in sorted(steps.rows, key=lambda r: r.key):
        name = snapshot.keys[row.key].name
        count, sum_ns = totals.get(name, (0, 0))
        totals[name] = (count + row.steps, sum_ns + row.sum_ns)

    def make(name: str, count: int | None, ns: int) -> StepSection:
        share = ns / steps.sum_ns if steps.sum_ns else None
        return StepSection(name, count, ns, ns / n / 1e6, share)

    rows = [make(name, count, ns) for name, (count, ns) in totals.items()]
    rest = steps.sum_ns - sum(ns for _, ns in totals.values())
    return (*rows, make(UNACCOUNTED, None, rest))
