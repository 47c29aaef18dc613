"""The table of plain steps: those without the function hook, which a budget makes most of a run."""

from collections.abc import Sequence
from dataclasses import replace

from fastprof.report.in_run import own_costs
from fastprof.report.outliers import find_plain_outliers
from fastprof.report.phase_names import DATA
from fastprof.report.rows import OWN_COST, UNACCOUNTED, StepSection, StepTable
from fastprof.report.run_phases import plain_are_most
from fastprof.report.stats import rarer
from fastprof.report.step_table import step_table
from fastprof.report.steps import OWN_KIND, SplitRow
from fastprof.snapshot import Snapshot

#: Kinds of time that are known in plain steps, too; the first ones are those of sections.
_OF_SECTIONS, _KNOWN = ("data", "communication"), ("gc", "cpu_wait")


def plain_table(whole: Snapshot, recorded: StepTable) -> StepTable | None:
    """Return the table of plain steps; None: they are few, or fewer than the others.

    It contains nothing of what recording functions costs.  The kinds of time that only functions
    show, and sections that were off, have the shares that they have of the recorded steps.

    Args:
        recorded: the steps in which functions were recorded.
    """
    plain = whole.plain_steps
    if plain is None or not plain_are_most(whole):
        return None
    only_plain = replace(whole, steps=plain)
    # Without the slow steps, which get their usual times below.
    made = step_table(replace(only_plain, outliers=None), whole, correct_times=False)
    wall_ns = plain.sum_ns
    rows, series = made.rows, made.series
    known: tuple[str, ...] = (*_OF_SECTIONS, *_KNOWN)
    were_off = _rarer(made, recorded)
    if were_off:
        known = _KNOWN
        series = replace(series, names={})
        # Those of loaders are never off.
        own = {row.name: row for row in rows if row.name in DATA and row.name not in were_off}
        parts = [row for row in recorded.rows if row.name not in (OWN_COST, *own)]
        left_ns = wall_ns - sum(row.total_ns for row in own.values())
        times = _scaled([row.total_ns for row in parts], left_ns)
        scaled = {
            row.name: StepSection(row.name, None, ns, ns / plain.measured / 1e6, ns / wall_ns)
            for row, ns in zip(parts, times, strict=True)
        } | own
        rows = tuple(scaled[row.name] for row in recorded.rows if row.name in scaled)
    rows = _with_own_cost(rows, own_costs(whole).timed_in_step, plain.measured, wall_ns)
    own_ns = sum(row.total_ns for row in rows if row.name == OWN_COST)
    split = _split(made, recorded, known, own_ns)
    steps = whole.steps
    slow = find_plain_outliers(
        only_plain,
        made.p50_ms,
        made.mean_ms or 0.0,
        {row.name: row.mean_ms for row in rows if row.name not in (UNACCOUNTED, OWN_COST)},
    )
    return replace(
        made,
        count=steps.count,
        skipped=steps.skipped,
        apart=max(0, steps.count - steps.skipped - plain.measured),
        rows=rows,
        series=series,
        split=split,
        split_missing=recorded.split_missing,
        outliers=tuple(
            sorted((*recorded.outliers, *slow), key=lambda row: (-row.wall_ms, row.index))
        ),
        unprofiled=None,
    )


def _rarer(made: StepTable, recorded: StepTable) -> frozenset[str]:
    """Return the sections that were off in some plain steps."""
    plain, others = (
        {row.name: row.steps for row in of.rows if row.steps} for of in (made, recorded)
    )
    return rarer(plain, made.measured, others, recorded.measured)


def _with_own_cost(
    rows: Sequence[StepSection], step_cost_ns: float, steps: int, wall_ns: int
) -> tuple[StepSection, ...]:
    """Return the rows with one of fastprof's own code, whose time is outside of sections."""
    rest = next((row.total_ns for row in rows if row.name == UNACCOUNTED), 0)
    own = max(0, min(round(step_cost_ns * steps), rest))

    def made(name: str, ns: int) -> StepSection:
        return StepSection(name, None, ns, ns / steps / 1e6, ns / wall_ns)

    kept = [made(UNACCOUNTED, rest - own) if r.name == UNACCOUNTED else r for r in rows]
    return (*kept, *([made(OWN_COST, own)] if own else []))


def _split(
    made: StepTable, recorded: StepTable, known: Sequence[str], own_ns: int
) -> tuple[SplitRow, ...]:
    """Return the kinds of time: known ones as recorded in plain steps, the others in proportion."""
    kinds = [row for row in recorded.split if row.name != OWN_KIND]
    if not kinds:
        return ()
    wall_ns, steps = made.wall_ns or 0, made.measured
    found = {row.name: row.total_ns for row in made.split if row.name in known}
    left = wall_ns - own_ns
    for row in kinds:
        if row.name in found:
            found[row.name] = min(found[row.name], left)
            left -= found[row.name]
    others = [row for row in kinds if row.name not in found]
    times = _scaled([row.total_ns for row in others], left)
    found |= {row.name: ns for row, ns in zip(others, times, strict=True)}
    if own_ns:
        kinds.append(SplitRow(OWN_KIND, own_ns, 0.0, None))
        found[OWN_KIND] = own_ns
    rows = [_kind(row, found[row.name], steps, wall_ns) for row in kinds]
    return tuple(sorted(rows, key=lambda row: -row.total_ns))


def _scaled(times: Sequence[int], whole_ns: int) -> list[int]:
    """Return times in proportion that add up to ``whole_ns``; the largest takes what is rounded."""
    if not times:
        return []
    sum_ns = max(1, sum(times))
    scaled = [ns * whole_ns // sum_ns for ns in times]
    scaled[scaled.index(max(scaled))] += whole_ns - sum(scaled)
    return scaled


def _kind(row: SplitRow, ns: int, steps: int, wall_ns: int) -> SplitRow:
    part = ns / row.total_ns if row.total_ns else 0.0
    places = tuple((where, round(of * part)) for where, of in row.places)
    return replace(row, total_ns=ns, mean_ms=ns / steps / 1e6, share=ns / wall_ns, places=places)
