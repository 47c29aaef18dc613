"""The tables of a comparison besides those of steps: sections, functions, kernels, loaders."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastprof.comparison.join import join
from fastprof.comparison.model import FASTER, NO_CHANGE, SLOWER, Change, Row
from fastprof.comparison.runs import Run, ranks_of_one_job
from fastprof.comparison.stats.significance import benjamini_hochberg, welch
from fastprof.names import file_name
from fastprof.report.loaders import LoaderRow
from fastprof.report.phase_names import ALIASES
from fastprof.report.rows import FunctionRow

#: Figure -> value, of one row of one run.
_Figures = Mapping[str, float | None]


class Tables:
    """Sections, functions, kernels and loaders of all sides, joined once."""

    def __init__(self, sides: Sequence[Sequence[Run]], *, per_step: bool) -> None:
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
            tested = self._tested(i, found, level) if row.status == "both" else None
            if tested is not None:
                p_values.append((len(rows), *tested))
            rows.append(row)
        adjusted = benjamini_hochberg([p for _, p, _ in p_values])
        for (number, _, estimate), p in zip(p_values, adjusted, strict=True):
            verdict = NO_CHANGE
            if p <= 1 - level:
                verdict = SLOWER if estimate > 0 else FASTER
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
            if are_two(name, other, tables):
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


def _largest_difference(row: Row) -> float:
    first = next(iter(row.figures.values()))
    return -abs(first.difference or 0.0)


def are_two(name: str, other: str, tables: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the two names of a phase belong to two sections: one run has both."""
    return any(name in table and other in table for table in tables)
