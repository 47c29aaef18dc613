"""Builds a :class:`~fastprof.comparison.model.Comparison` from saved runs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fastprof.comparison.model import Comparison, Effect, Pair
from fastprof.comparison.notes import notes
from fastprof.comparison.row_tables import Tables, are_two
from fastprof.comparison.runs import (
    CPU,
    RANKS,
    STEP,
    Run,
    Source,
    as_pstats_sees_it,
    open_run,
    ranks_of_one_job,
    recording,
    whole,
)
from fastprof.comparison.settings import other_machine, settings
from fastprof.comparison.stats.significance import (
    Series,
    decide,
    effect_of_sides,
    withdrawn,
)
from fastprof.comparison.summary import summary, uniformity
from fastprof.comparison.tops import tops
from fastprof.report.figures import plural, with_percent
from fastprof.report.phase_names import ALIASES

LEVEL = 0.95
#: Two runs of the same program may differ by this part for external reasons.
NOISE = 0.02
#: With more sides the table is unreadable.
_MOST_SIDES = 16

#: Most folders of a path in a run's label.
_MOST_PARTS = 2

_Side = tuple[Run, ...]


def compare(
    *sides: Source | Sequence[Source], level: float = LEVEL, noise: float = NOISE
) -> Comparison:
    """Compare saved runs with the first one.

    Args:
        sides: two or more; each a report, the path of a saved run (``.fprof``, or a
            ``.stats`` file of any profiler), or a list of those: several runs of the same
            program, which show how much one run differs from the next.
        level: the level of intervals and decisions, from 0.5 to 0.999.
        noise: with one run per side, the relative change that counts as none, from 0 to 1.

    Raises:
        TypeError: a side of another type.
        ValueError: fewer than two sides, a side without a run, or a number out of range.
        LoadError: (a ValueError) a file is not a saved run.
        OSError: a file cannot be read.
    """
    return compare_runs(open_sides(sides), level=level, noise=noise)


def open_sides(sides: Sequence[Source | Sequence[Source]]) -> list[_Side]:
    """Open the sides of :func:`compare`, with the same errors; their figures are comparable."""
    if not 2 <= len(sides) <= _MOST_SIDES:
        raise ValueError(
            f"{plural(len(sides), 'run')} to compare, expected 2 to {_MOST_SIDES}: name the run "
            "before and the one after"
        )
    return _comparable(_named([_open_side(side) for side in sides]))


def compare_runs(sides: Sequence[_Side], *, level: float, noise: float) -> Comparison:
    """Compare the result of :func:`open_sides`; raises ValueError like :func:`compare`."""
    if not 0.5 <= level <= 0.999:
        raise ValueError(f"level is {level!r:.80}, expected 0.5 to 0.999 (0.95 is 95 %)")
    if not 0 <= noise <= 1:
        raise ValueError(f"noise is {noise!r:.80}, expected 0 to 1 (0.02 is 2 %)")
    per_step = not sides[0][0].of_run
    labels = [
        f"{side[0].label} and {len(side) - 1} more" if len(side) > 1 else side[0].label
        for side in sides
    ]
    tables = Tables(sides, per_step=per_step)
    pairs = tuple(
        _pair(sides, i, labels, tables, level=level, noise=noise) for i in range(1, len(sides))
    )
    return Comparison(
        labels=tuple(labels),
        runs=tuple(len(side) for side in sides),
        basis="step" if per_step else "run",
        level=level,
        noise=noise,
        pairs=pairs,
        tops=tuple(tops(side[0].report) for side in sides) if len(sides) == 2 else (),
        steps=tuple(side[0].step_ms for side in sides),
    )


def _comparable(sides: Sequence[_Side]) -> list[_Side]:
    """Return the runs with figures of the same kind."""
    runs = [run for side in sides for run in side]
    of_run = not all(run.report.steps.measured for run in runs)
    # Measured steps of one run are not comparable with the whole of another run.
    wholly = of_run or len({run.report.phase for run in runs}) > 1
    as_stats = not all(run.report.has_tree for run in runs)

    def made(run: Run) -> Run:
        run = whole(run) if wholly else run
        run = as_pstats_sees_it(run) if as_stats else run
        return replace(run, of_run=of_run)

    return [tuple(map(made, side)) for side in sides]


def _open_side(side: Source | Sequence[Source]) -> _Side:
    if isinstance(side, (list, tuple)):
        if not side:
            raise ValueError("a side of the comparison has no run")
        runs = tuple(open_run(source) for source in side)
        known: dict[tuple[object, ...], Run] = {}
        for run in runs:
            other = known.setdefault(run.identity, run) if run.identity else run
            if other is not run:
                raise ValueError(
                    f"{run.label!r} and {other.label!r} are the same run: name each run of a side "
                    "once"
                )
        return runs
    return (open_run(side),)  # type: ignore[arg-type]


def _named(sides: Sequence[_Side]) -> list[_Side]:
    """Return the runs with distinct labels: file name, else folder, else start, else number."""
    runs = [run for side in sides for run in side]
    names = [run.label for run in runs]
    for other in (_folders(runs), [run.started for run in runs]):
        if len(set(names)) == len(names):
            break
        if len(set(other)) == len(other) and all(other):
            names = other
    if len(set(names)) < len(names):
        names = [
            f"{name} ({i})" if names.count(name) > 1 else name for i, name in enumerate(names, 1)
        ]
    labels = iter(names)
    return [tuple(replace(run, label=next(labels)) for run in side) for side in sides]


def _folders(runs: Sequence[Run]) -> list[str]:
    """Return the paths without the parts at either end that all share, shortened to the ends."""
    parts = [[part for part in re.split(r"[/\\]", run.path) if part] for run in runs]
    if not all(parts):
        return [""] * len(runs)
    for end in (0, -1):
        while all(len(p) > 1 for p in parts) and len({p[end] for p in parts}) == 1:
            for p in parts:
                del p[end]
    return ["/".join(p[-_MOST_PARTS:]) for p in parts]


def _pair(
    sides: Sequence[_Side],
    i: int,
    labels: Sequence[str],
    tables: Tables,
    *,
    level: float,
    noise: float,
) -> Pair:
    before, after = sides[0], sides[i]
    effects = _effects(before, after, level=level, noise=noise)
    return Pair(
        before=labels[0],
        after=labels[i],
        summary=summary(before, after, effects),
        uniformity=uniformity(before, after),
        settings=settings(before, after),
        other_machine=other_machine(before, after),
        effects=effects,
        sections=tables.sections(i),
        functions=tables.functions(i, level=level),
        kernels=tables.kernels(i),
        loaders=tables.loaders(i),
        notes=notes(before, after, noise=noise),
    )


# ---- steps and sections, with statistics ----


def _effects(before: _Side, after: _Side, *, level: float, noise: float) -> tuple[Effect, ...]:
    names = _series_names([*before, *after])
    ranks = ranks_of_one_job(before, after)
    single = len(before) == len(after) == 1
    recorded = all(run.report.snapshot.steps.series.wall_ns for run in (*before, *after))
    effects = []
    for name, aliases in names.items():
        kind = {STEP: "step", CPU: "cpu"}.get(name, "section")
        shown = name.removeprefix("section ")
        a, b = ([_find(run.series, aliases) for run in side] for side in (before, after))
        if None in a or None in b:
            if kind == "section" and recorded and not (any(a) and any(b)):
                effects.append(_one_sided(shown, before, after, a, b))
            continue
        x, y = ([s for s in side if s is not None] for side in (a, b))
        effect = effect_of_sides(
            shown, kind, x, y, level=level, noise=noise,
            lost_ms=_lost_ms(kind, x, (*before, *after)),
            recording=recording(before, after, aliases), rows=len(names),
        )  # fmt: skip
        if single:
            effect = _doubted(effect, kind, before[0], after[0])
        elif ranks and effect.p is not None:
            effect = withdrawn(effect, RANKS)
        effects.append(effect)
    return decide(effects, level=level)


def _lost_ms(kind: str, before: Sequence[Series], runs: Sequence[Run]) -> float:
    """Return the time per step of a row that other programs may have added to it."""
    if kind != "cpu":
        return max(run.lost_ms for run in runs)
    busiest = max((run.interrupted or 0.0 for run in runs if run.busy), default=0.0)
    # By sharing caches and cores: the larger, the longer they ran.
    values = before[0].values
    return busiest * sum(values) / len(values) if values else 0.0


def _one_sided(
    name: str, before: _Side, after: _Side, a: Sequence[Series | None], b: Sequence[Series | None]
) -> Effect:
    """Return the row of a section that only one side has; it takes the other side no time."""
    here, there = (
        sum(sum(s.values) / len(s.values) for s in found if s is not None and s.values) / len(found)
        for found in (a, b)
    )
    reason = f"only the run {'before' if any(a) else 'after'} has it"
    return Effect(
        name, "section", (before[0].steps, after[0].steps), here, there, there - here, reason=reason
    )


def _series_names(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    """Return name -> its possible names in a run; phases have two."""
    names: dict[str, tuple[str, ...]] = {}
    for run in runs:
        for name in run.series:
            other = "section " + ALIASES.get(name.removeprefix("section "), "")
            if are_two(name, other, [r.series for r in runs]):
                other = name
            if name not in names and other not in names:
                names[name] = (name, other)
    return names


def _find(series: Mapping[str, Series], names: Iterable[str]) -> Series | None:
    return next((series[name] for name in names if name in series), None)


def _doubted(effect: Effect, kind: str, before: Run, after: Run) -> Effect:
    """Withdraw a verdict that single runs cannot decide: a busy machine, or unsettled steps.

    CPU time has no waits for a CPU in it: :func:`_lost_ms` allows for the rest.
    """
    sides = ((before, "before"), (after, "after"))
    unsettled = next((side for run, side in sides if run.left_out is None), "")
    busy = [(run, side) for run, side in sides if run.busy]
    if unsettled:  # also the reason why there are too few settled steps
        reason = f"the step times of the run {unsettled} do not become steady"
    elif busy and effect.p is not None and kind != "cpu":
        run, side = busy[-1]
        reason = (
            "the machine was busy: other programs took about "
            f"{with_percent(run.interrupted)} of the steps' time in the run {side}"
        )
    else:
        return effect
    return withdrawn(effect, reason)
