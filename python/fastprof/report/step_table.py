"""The table of steps: the time of one, and its top-level sections."""

from fastprof.report.correct import correct
from fastprof.report.in_run import unprofiled_step
from fastprof.report.outliers import find_outliers
from fastprof.report.rows import OWN_COST, UNACCOUNTED, StepSection, StepTable
from fastprof.report.run_phases import view_of
from fastprof.report.stats import (
    QUANTILES,
    coefficient_of_variation,
    exact_quantiles,
    histogram_quantiles,
)
from fastprof.report.step_costs import NO_SECTION, costs_by_section
from fastprof.report.steps import series_view, split_rows
from fastprof.snapshot import Snapshot, Steps
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS


def step_table(snapshot: Snapshot, whole: Snapshot, *, correct_times: bool) -> StepTable:
    """Return the table of steps.

    Args:
        correct_times: whether fastprof's cost is subtracted from the sections of steps.
    """
    steps = snapshot.steps
    n = steps.measured
    if n == 0:
        return StepTable(steps.count, steps.skipped, *(None,) * 8, rows=(), apart=steps.apart)
    if len(steps.recent_ns) == n:  # the snapshot has all of them
        quantiles = exact_quantiles(steps.recent_ns, QUANTILES)
    else:
        quantiles = histogram_quantiles(steps.hist, QUANTILES, low=steps.min_ns, high=steps.max_ns)
    p50, p95, p99 = (None if q is None else q / 1e6 for q in quantiles)
    rows, left_out = _step_rows(snapshot, steps, n, costs_of_steps(whole) if correct_times else {})
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
        rows=rows,
        outliers=find_outliers(snapshot, p50),
        series=series_view(snapshot),
        split=split_rows(snapshot, left_out, _waits_ns(whole) if left_out else 0),
        split_missing=steps.split_missing,
        gc_runs=steps.gc_runs,
        apart=steps.apart,
        unprofiled=unprofiled_step(whole),
    )


def costs_of_steps(whole: Snapshot) -> dict[int, float]:
    """Return fastprof's cost by section; empty: the tree does not tell steps from the rest."""
    if not whole.phases:
        return {}
    return costs_by_section(whole, view_of(whole, RUN_PHASES[STEPS]))


def _waits_ns(whole: Snapshot) -> int:
    """Return the part of these costs that made waits for locks longer."""
    return correct(view_of(whole, RUN_PHASES[STEPS])).waits_ns


def costs_are_limit(whole: Snapshot) -> bool:
    """Return whether these costs are the most that the run allows, not an estimate."""
    factors = correct(whole).factors
    return factors is not None and factors.bound


def _step_rows(
    snapshot: Snapshot, steps: Steps, n: int, costs: dict[int, float]
) -> tuple[tuple[StepSection, ...], dict[str, int]]:
    """Return the rows, and fastprof's cost that each of them leaves out."""
    totals: dict[str, tuple[int, int, float]] = {}
    for row in steps.rows:
        name = snapshot.keys[row.key].name
        count, sum_ns, cost_ns = totals.get(name, (0, 0, 0.0))
        cost_ns += costs.get(row.key, 0.0)
        totals[name] = (count + row.steps, sum_ns + row.sum_ns, cost_ns)
    rest = steps.sum_ns - sum(ns for _, ns, _ in totals.values())
    left_out: dict[str, int] = {}

    def make(name: str, count: int | None, ns: int, cost_ns: float = 0.0) -> StepSection:
        left_out[name] = cost = min(max(0, ns), round(cost_ns))
        share = (ns - cost) / steps.sum_ns if steps.sum_ns else None
        return StepSection(name, count, ns - cost, (ns - cost) / n / 1e6, share)

    rows = [make(name, *figures) for name, figures in totals.items()]
    rows.append(make(UNACCOUNTED, None, rest, costs.get(NO_SECTION, 0.0)))
    if any(left_out.values()):
        rows.append(make(OWN_COST, None, sum(left_out.values())))
    return tuple(rows), left_out
