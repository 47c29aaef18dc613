"""Builds a :class:`~fastprof.comparison.model.Comparison` from saved runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastprof.comparison.join import join
from fastprof.comparison.model import Change, Comparison, Effect, Pair, Row
from fastprof.comparison.notes import notes
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
    benjamini_hochberg,
    decide,
    effect_of_sides,
    welch,
    withdrawn,
)
from fastprof.comparison.summary import summary, uniformity
from fastprof.comparison.tops import tops
from fastprof.names import file_name
from fastprof.report.figures import plural, with_percent
from fastprof.report.loaders import LoaderRow
from fastprof.report.phase_names import ALIASES
from fastprof.report.rows import FunctionRow

LEVEL = 0.95
#: Two runs of the same program may differ by this part for external reasons.
NOISE = 0.02
#: With more sides the table is unreadable.
_MOST_SIDES = 16

#: Most folders of a path in a run's label.
_MOST_PARTS = 2

_Side = tuple[Run, ...]
#: Figure -> value, of one row of one run.
_Figures = Mapping[str, float | None]


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
    tables = _Tables(sides, per_step=per_step)
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
                    f"{run.label!a} and {other.label!a} are the same run: name each run of a side "
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
    tables: _Tables,
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
            lost_ms=0.0 if kind == "cpu" else max(run.lost_ms for run in (*before, *after)),
            recording=recording(before, after, aliases), rows=len(names),
        )  # fmt: skip
        if single:
            effect = _doubted(effect, before[0], after[0])
        elif ranks and effect.p is not None:
            effect = withdrawn(effect, RANKS)
        effects.append(effect)
    return decide(effects, level=level)


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
            if _both(name, other, [r.series for r in runs]):
                other = name
            if name not in names and other not in names:
                names[name] = (name, other)
    return names


def _both(name: str, other: str, tables: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the two names of a phase belong to two sections: one run has both."""
    return any(name in table and other in table for table in tables)


def _find(series: Mapping[str, Series], names: Iterable[str]) -> Series | None:
    return next((series[name] for name in names if name in series), None)


def _doubted(effect: Effect, before: Run, after: Run) -> Effect:
    """Withdraw a verdict that single runs cannot decide: a busy machine, or unsettled steps."""
    sides = ((before, "before"), (after, "after"))
    unsettled = next((side for run, side in sides if run.left_out is None), "")
    busy = [(run, side) for run, side in sides if run.busy]
    if unsettled:  # also the reason why there are too few settled steps
        reason = f"the steps of the run {unsettled} do not settle"
    elif busy and effect.p is not None:
        run, side = busy[-1]
        reason = (
            "the machine was busy: other programs took about "
            f"{with_percent(run.interrupted)} of the steps' time in the run {side}"
        )
    else:
        return effect
    return withdrawn(effect, reason)


# ---- tables without statistics ----


class _Tables:
    """Sections, functions, kernels and loaders of all sides, joined once."""

    def __init__(self, sides: Sequence[_Side], *, per_step: bool) -> None:
        self._sides = sides
        self._runs = [run for side in sides for run in side]
        self._per_step = per_step
        #: Columns of each side in a joined row.
        self._columns: list[range] = []
        for side in sides:
            begin = self._columns[-1].stop if self._columns else 0
            self._columns.append(range(begin, begin + len(side)))
        self._functions = join(
            [run.without_waits.rows for run in self._runs], [run.script for run in self._runs]
        )

    def functions(self, i: int, *, level: float) -> tuple[Row, ...]:
        """Return functions of the first side and side ``i``, largest difference first."""
        rows: list[Row] = []
        if len({run.records_functions for run in (*self._sides[0], *self._sides[i])}) > 1:
            return ()  # they were not recorded, which is not the same as "gone"
        p_values: list[tuple[int, float, float]] = []
        for found in self._functions:
            row = self._row(i, found, _function_figures)
            if row is None:
                continue
            if self._muted(i, found):
                row = replace(row, status="muted")
            tested = self._tested(i, found, level) if row.status == "both" else None
            if tested is not None:
                p_values.append((len(rows), *tested))
            rows.append(row)
        adjusted = benjamini_hochberg([p for _, p, _ in p_values])
        for (number, _, estimate), p in zip(p_values, adjusted, strict=True):
            verdict = "no significant change"
            if p <= 1 - level:
                verdict = "slower" if estimate > 0 else "faster"
            rows[number] = replace(rows[number], p_adjusted=p, verdict=verdict)
        return tuple(sorted(rows, key=_largest_difference))

    def _tested(
        self, i: int, found: Sequence[FunctionRow | None], level: float
    ) -> tuple[float, float] | None:
        """Return p and estimate of a function's self time; None with one run per side."""
        sides = []
        for columns in (self._columns[0], self._columns[i]):
            values = []
            for column in columns:
                row = found[column]
                values.append(row.self_ms / self._divisor(column) if row else 0.0)
            sides.append(values)
        ranks = ranks_of_one_job(self._sides[0], self._sides[i])
        result = None if ranks else welch(*sides, level=level)
        return None if result is None else (result.p, result.estimate)

    def _muted(self, i: int, found: Sequence[FunctionRow | None]) -> bool:
        """Return whether a function was not recorded all the time in one of the runs."""
        return any(
            (row := found[c]) is not None and (row.file, row.line, row.name) in self._runs[c].muted
            for side in (0, i)
            for c in self._columns[side]
        )

    def sections(self, i: int) -> tuple[Row, ...]:
        """Return sections in order of first use."""
        return self._by_name(
            i,
            [{s.name: s for s in run.report.sections} for run in self._runs],
            lambda s, per: {
                "total_ms": _divided(s.total_ms, per),
                "self_ms": _divided(s.self_ms, per),
                "count": s.count / per,
                "mean_ms": s.mean_ms,
                "p99_ms": s.p99_ms,
                "gpu_ms": _divided(s.gpu_ms, per),
                "blocked_ms": _divided(s.blocked_ms, per),
            },
            ALIASES,
        )

    def kernels(self, i: int) -> tuple[Row, ...]:
        """Return kernels by name, over all devices; largest difference first."""
        tables: list[dict[str, tuple[float, int]]] = []
        for run in self._runs:
            table: dict[str, tuple[float, int]] = {}
            for kernel in run.report.kernels:
                time, count = table.get(kernel.name, (0.0, 0))
                table[kernel.name] = (time + kernel.total_ms, count + kernel.count)
            tables.append(table)
        rows = self._by_name(
            i,
            tables,
            lambda k, per: {
                "total_ms": k[0] / per,
                "count": k[1] / per,
                "mean_us": 1e3 * k[0] / k[1] if k[1] else None,
            },
        )
        return tuple(sorted(rows, key=_largest_difference))

    def loaders(self, i: int) -> tuple[Row, ...]:
        """Return loaders by name and split; times are per batch."""
        return self._by_name(
            i,
            [
                {f"{w.name} ({w.split})": (w, run.report.steps.count) for w in run.report.loaders}
                for run in self._runs
            ],
            lambda found, _: self._loader_figures(*found),
        )

    def _loader_figures(self, w: LoaderRow, steps: int) -> _Figures:
        # Batches are counted over the whole run.
        return {
            "batches": w.batches / steps if self._per_step else w.batches,
            "data_ms": w.data_ms,
            "batch_wait_ms": w.batch_wait_ms,
            "blocked_share": w.workers.blocked_share if w.workers else None,
            "load_ms": w.workers.load_ms if w.workers else None,
        }

    def _divisor(self, column: int) -> int:
        # Times 1 / steps would make 6 calls in each of 91 steps 6.000000000000001.
        return self._runs[column].steps if self._per_step else 1

    def _by_name(
        self,
        i: int,
        tables: Sequence[Mapping[str, Any]],
        figures: Callable[[Any, int], _Figures],
        aliases: Mapping[str, str] = {},
    ) -> tuple[Row, ...]:
        names = dict.fromkeys(
            name for side in (0, i) for column in self._columns[side] for name in tables[column]
        )
        rows = []
        seen: set[str] = set()
        for name in names:
            if name in seen:
                continue
            other = aliases.get(name, name)
            if _both(name, other, tables):
                other = name
            seen.update((name, other))
            found = [table.get(name, table.get(other)) for table in tables]
            row = self._row(i, found, figures, name)
            if row is not None:
                rows.append(row)
        return tuple(rows)

    def _row(
        self,
        i: int,
        found: Sequence[Any],
        figures: Callable[[Any, int], _Figures],
        name: str | None = None,
    ) -> Row | None:
        """Return a row; without a ``name``, of a function."""
        sides = []
        firsts = []
        for columns in (self._columns[0], self._columns[i]):
            there = [(found[c], self._divisor(c)) for c in columns if found[c] is not None]
            firsts.append(there[0][0] if there else None)
            sides.append(_mean_figures([figures(row, per) for row, per in there], len(columns)))
        before, after = firsts
        if before is None and after is None:
            return None
        status = "both" if before is not None and after is not None else (
            "gone" if after is None else "new")  # fmt: skip
        keys = dict.fromkeys((*sides[0], *sides[1]))
        last: Any = before if after is None else after
        return Row(
            name=name if name is not None else last.qualname or last.name,
            place=_function_place(before, after) if name is None else "",
            status=status,
            figures={k: Change(sides[0].get(k), sides[1].get(k)) for k in keys},
        )


def _mean_figures(rows: Sequence[_Figures], runs: int) -> dict[str, float | None]:
    """Return means over the runs of a side; figures per entry over the runs that have them."""
    out: dict[str, float | None] = {}
    for key in dict.fromkeys(key for row in rows for key in row):
        values = [value for row in rows if (value := row.get(key)) is not None]
        over = len(values) if key in _PER_ENTRY else runs
        out[key] = sum(values) / over if values else None
    return out


_PER_ENTRY = frozenset(
    {"mean_ms", "p99_ms", "mean_us", "per_call_ms", "data_ms", "batch_wait_ms", "blocked_share",
     "load_ms"}
)  # fmt: skip


def _divided(value: float | None, per: int) -> float | None:
    return None if value is None else value / per


def _function_figures(row: FunctionRow, per: int) -> _Figures:
    return {
        "self_ms": row.self_ms / per,
        "cum_ms": row.cum_ms / per,
        "calls": (row.calls + row.resumes) / per,
        "per_call_ms": row.cum_ms / (row.primitive_calls or row.calls or 1),
        "gpu_ms": _divided(row.gpu_ms, per),
    }


def _function_place(before: FunctionRow | None, after: FunctionRow | None) -> str:
    places = [_place(row) for row in (before, after) if row is not None]
    if len(places) == 2 and places[0] != places[1]:
        return f"{places[1]} (was {places[0]})"
    return places[-1]


def _place(row: FunctionRow) -> str:
    if not row.line:
        return "(C)" if row.file in ("", "~") else file_name(row.file)
    return f"{file_name(row.file)}:{row.line}"


def _largest_difference(row: Row) -> tuple[bool, float]:
    first = next(iter(row.figures.values()))
    return row.status == "muted", -abs(first.difference or 0.0)
