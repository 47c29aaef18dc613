"""The table of plain steps: those without the function hook, which a budget makes most of a run."""

from collections.abc import Sequence
from dataclasses import replace

from fastprof.report.correct import correct
from fastprof.report.in_run import own_costs
from fastprof.report.model import Report
from fastprof.report.origin import own_keys
from fastprof.report.outliers import find_plain_outliers
from fastprof.report.rows import OWN_COST, UNACCOUNTED, SectionRow, StepSection, StepTable
from fastprof.report.run_phases import between_steps_ns, beyond_steps_ns, plain_are_most, view_of
from fastprof.report.sections import row_groups, section_rows
from fastprof.report.stats import rarer
from fastprof.report.step_table import step_table
from fastprof.report.steps import OWN_KIND, SplitRow
from fastprof.report.threads import training_thread
from fastprof.snapshot import Snapshot

#: Kinds of time that are known in plain steps, too; the first ones are those of sections.
_OF_SECTIONS, _KNOWN = ("data", "communication"), ("gc", "cpu_wait")

#: Name of what a report keeps.
_SCALE = "function scale"


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
    were_off = sections_off(whole, made, recorded)
    if were_off:
        known = _KNOWN
        series = replace(series, names={})
        # The program's own sections and those of loaders are never off.
        own = {r.name: r for r in rows if r.name not in (*were_off, UNACCOUNTED, OWN_COST)}
        parts = [row for row in recorded.rows if row.name not in (OWN_COST, *own)]
        left_ns = wall_ns - sum(row.total_ns for row in own.values())
        times = _scaled([row.total_ns for row in parts], left_ns)
        made_rows = own | {
            row.name: StepSection(row.name, None, ns, ns / plain.measured / 1e6, ns / wall_ns)
            for row, ns in zip(parts, times, strict=True)
        }
        names = dict.fromkeys([*(row.name for row in recorded.rows), *own])
        order = sorted(names, key=UNACCOUNTED.__eq__)  # it is the last one
        rows = tuple(made_rows[name] for name in order if name in made_rows)
    rows = _with_own_cost(rows, own_costs(whole).timed_in_step, plain.measured, wall_ns)
    own_ns = sum(row.total_ns for row in rows if row.name == OWN_COST)
    split = _split(made, recorded, known, own_ns)
    steps = whole.steps
    slow = find_plain_outliers(
        only_plain,
        made.p50_ms,
        made.mean_ms or 0.0,
        {row.name: row.mean_ms for row in rows if row.name not in (UNACCOUNTED, OWN_COST)},
        were_off,
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


def sections_off(whole: Snapshot, made: StepTable, recorded: StepTable) -> frozenset[str]:
    """Return the automatic sections that were off in some plain steps."""
    if not whole.meta.get("sections_off"):
        return frozenset()
    plain, others = (
        {row.name: row.steps for row in of.rows if row.steps} for of in (made, recorded)
    )
    return rarer(plain, made.measured, others, recorded.measured)


def sections_shown(
    whole: Snapshot, plain: StepTable, rows: Sequence[SectionRow]
) -> tuple[SectionRow, ...]:
    """Return the rows of sections, those of plain steps where these have the section.

    Sections that were off, and what kernels took in sections, are known of recorded steps only.

    Args:
        plain: a result of :func:`plain_table`.
        rows: the sections in the steps in which functions were recorded.
    """
    view = view_of(whole, "unprofiled")
    found = {
        row.name: row
        for row in section_rows(
            whole,
            view,
            correct(view, enabled=False),
            row_groups(view),
            None,
            span_ns=plain.wall_ns or 0,
            in_steps={row.name: row.total_ns for row in plain.rows if row.steps},
        )
        if row.count
    }
    here = {row.name: row for row in rows}
    if whole.meta.get("sections_off"):  # automatic ones may be in any row
        own = {row.name for row in plain.rows if row.steps}
        found = {name: row for name, row in found.items() if name in own or name not in here}
    # Kernels are counted with functions; a section may be open in either kind of steps.
    found = {
        name: replace(row, open=here[name].open if name in here else 0)
        for name, row in found.items()
        if name not in here or here[name].gpu is None
    }
    return tuple((here | found).values())


def function_scale(report: Report) -> float:
    """Return by what times of functions are multiplied to be those of the step that is shown.

    Functions are recorded in steps with the hook, and a plain step may be shown: such steps differ
    by more than the hook's known cost, and a function must not take longer than the step.
    1.0 where the report is not on steps, or functions may have run outside of them.
    """
    if _SCALE not in report.known:  # every tree of a thread needs it
        report.known[_SCALE] = _function_scale(report)
    scale: float = report.known[_SCALE]
    return scale


def _function_scale(report: Report) -> float:
    view, plain = report.view, report.plain
    number = training_thread(view)
    if plain is None or report.phase != "steps" or not report.steps.wall_ns:
        return 1.0
    if not 0 <= number < len(view.threads) or beyond_steps_ns(view, report.phase, number):
        return 1.0
    own = own_keys(view.keys)
    nodes = view.threads[number].nodes
    column = correct(view, enabled=report.overhead.corrected).self_ns[number]
    times = zip(nodes.key, column, strict=True)
    recorded_ns = sum([0 if key in own else ns for key, ns in times])
    recorded_ns -= min(between_steps_ns(view, number), column[0])
    shown = plain.mean_ms or 0.0
    shown -= sum(row.mean_ms for row in plain.rows if row.name == OWN_COST)
    recorded = recorded_ns / report.steps.measured / 1e6
    return shown / recorded if min(shown, recorded) > 0 else 1.0


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
