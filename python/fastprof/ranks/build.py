"""Builds the report of all ranks from single ones; see :mod:`fastprof.ranks.model`."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from fastprof.ranks.between import pace_ms, works_between_steps
from fastprof.ranks.heat import rank_heat
from fastprof.ranks.judge import groups_in_step, out_of_step
from fastprof.ranks.model import (
    FunctionTotal,
    RankReport,
    RankRow,
    SectionSpread,
    Straggler,
    WorkBetweenSteps,
    named,
)
from fastprof.ranks.notes import rank_notes, steps_apart
from fastprof.ranks.row import RankRun
from fastprof.ranks.verdict import Verdict, by_steps, healthy

#: Fewest measured steps per rank for a verdict.
MIN_STEPS = 5


def rank_report(
    runs: Sequence[RankRun],
    functions: Sequence[FunctionTotal] = (),
    skipped: Sequence[tuple[str, str]] = (),
) -> RankReport:
    """Compare the ranks of one job.

    Args:
        skipped: files that were left out, and why.

    Raises:
        ValueError: no rank, a rank twice, or ranks of jobs of different size.
    """
    runs = sorted(runs, key=lambda r: r.row.rank)
    rows = [run.row for run in runs]
    world = _world_size(rows)
    known = {row.rank for row in rows}
    missing = () if world is None else tuple(r for r in range(world) if r not in known)
    between = works_between_steps(runs)
    groups, verdicts = _judge(runs, between)
    worst = max(verdicts, key=_weight)
    # In the order of the rows; the own work of ranks that were not judged is unknown.
    work = {
        rank: ms
        for group, verdict in zip(groups, verdicts, strict=True)
        for rank, ms in zip(group, verdict.works, strict=False)
    }
    works = [work[i] for i in range(len(runs))] if len(work) == len(runs) else []
    blind = [v for v in verdicts if v.seen_from_ms is None]
    seen = [v.seen_from_ms for v in verdicts if v.seen_from_ms is not None]
    return RankReport(
        rows=tuple(rows),
        world_size=world,
        missing=missing,
        sections=_spreads(rows),
        signal=worst.signal,
        work_ms=tuple(works),
        imbalance=max(works) / fmean(works) - 1 if works and fmean(works) > 0 else None,
        straggler=_with_healthy_steps(worst),
        functions=tuple(functions),
        notes=tuple(
            rank_notes(
                runs,
                missing,
                worst.signal if works else "",
                worst.plain and bool(works),
                "" if worst.straggler is not None else (blind or [worst])[0].why_not,
                [[rows[i].rank for i in group] for group in groups],
                skipped,
                between,
            )
        ),
        seen_from_ms=None if blind else max(seen, default=None),
        periods=tuple(sorted(worst.periods, key=lambda p: p.first)),
        hangs=tuple(sorted((h for v in verdicts for h in v.hangs), key=lambda h: -h.late_ms)),
        hung=tuple(sorted((h for v in verdicts for h in v.hung), key=lambda h: -h.late_ms)),
        skipped=tuple(skipped),
        heat=rank_heat({rank: s for v in verdicts for rank, s in v.lateness.items()}),
        between=between[0] if between else None,
    )


def _with_healthy_steps(verdict: Verdict) -> Straggler | None:
    late = verdict.straggler
    return None if late is None else replace(late, healthy=healthy(verdict))


def _weight(verdict: Verdict) -> tuple[float, float]:
    late = verdict.straggler
    return (0.0 if late is None else late.late_ms, max(verdict.works, default=0.0))


def _world_size(rows: Sequence[RankRow]) -> int | None:
    if not rows:
        raise ValueError("no ranks to merge")
    for a, b in pairwise(rows):
        if a.rank == b.rank:
            hint = ""
            if not a.rank and (a.world_size or 1) == 1:
                hint = "; the variable RANK gives each process its rank"
            raise ValueError(f"rank {a.rank} is in two files: {a.path!r} and {b.path!r}{hint}")
    sizes = {row.world_size: row for row in rows if (row.world_size or 1) > 1}
    if len(sizes) > 1:
        (size, row), (other, of) = list(sizes.items())[:2]
        raise ValueError(
            f"these are ranks of different jobs: {row.path!r} is of {size} ranks, {of.path!r} of "
            f"{other}"
        )
    size = next(iter(sizes), None)
    return size if size is not None and size > rows[-1].rank else None


def _judge(
    runs: Sequence[RankRun], between: Sequence[WorkBetweenSteps]
) -> tuple[list[list[int]], list[Verdict]]:
    """Return groups of ranks that wait for each other, and the verdict on each."""
    everyone = [list(range(len(runs)))]
    if len(runs) < 2:
        return everyone, [Verdict(why_not="A single rank has no other rank to wait for.")]
    without = [run.row.rank for run in runs if run.row.step_ms is None]
    if without:
        why = f"Who is late is not known: no steps were measured in {named(without)}."
        return everyone, [Verdict(why_not=why)]
    few = [run.row.rank for run in runs if run.row.steps < MIN_STEPS]
    if few:
        why = (
            f"Who is late is not known: fewer than {MIN_STEPS} steps were measured in {named(few)}."
        )
        return everyone, [Verdict(why_not=why)]
    unseen = [run.row.rank for run in runs if run.steps is None]
    if unseen:
        why = f"Who is late is not known: single steps were not recorded in {named(unseen)}."
        return everyone, [Verdict(why_not=why)]
    paces = [pace_ms(run.row, between) for run in runs]
    apart = out_of_step([run.row.steps for run in runs], paces)
    if len(runs) - len(apart) < 2:
        why = f"No rank waits for another: {steps_apart([run.row for run in runs])}."
        return everyone, [Verdict(why_not=why)]
    groups = groups_in_step({i: ms for i, ms in enumerate(paces) if i not in apart})
    return groups, [by_steps([runs[i] for i in group]) for group in groups]


def _spreads(rows: Sequence[RankRow]) -> tuple[SectionSpread, ...]:
    found: dict[str, list[tuple[float, int]]] = {}
    for row in rows:
        for name, ms in row.sections:
            found.setdefault(name, []).append((ms, row.rank))
    out = []
    for name, values in found.items():
        (low, low_rank), (high, high_rank) = min(values), max(values)
        mean = fmean(ms for ms, _ in values)
        out.append(SectionSpread(name, len(values), mean, low, low_rank, high, high_rank))
    return tuple(out)
