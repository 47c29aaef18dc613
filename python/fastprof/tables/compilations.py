"""What was compiled during a run, in words and tables."""

from collections.abc import Sequence

from fastprof.names import file_name, readable
from fastprof.report.compilations import CompileBreak, CompileReport, CompileRow
from fastprof.report.compile_reasons import why_again
from fastprof.report.figures import counted, plural
from fastprof.report.model import Report
from fastprof.tables.cells import Table, number, short

#: Functions and breaks in a table.
_ROWS = 20
#: Steps that a row lists.
_STEPS = 5


def compile_tables(report: Report) -> list[Table]:
    """Return the tables of compiled functions, graph breaks and steps; some have no rows."""
    found = report.compilations
    if found is None:
        return []
    rows = tuple(_cells(row) for row in found.rows[:_ROWS])
    if rows:
        rows = (*rows, _total(found))
    title = f"Compiled by {found.compiler} ({_caches(found)})"
    headers = (
        "function", "times", "again", "ms", "capture", "backend", "kernels", "steps", "why again",
    )  # fmt: skip
    return [
        Table(title, headers, rows, left=frozenset({0, 7, 8}),
              spare=("steps", "capture", "backend"), total=True),
        Table("Graph breaks: compiled code ends and Python goes on",
              ("line", "because of", "times"), _broken(found, _ROWS), left=frozenset({0, 1})),
        _steps_again(found),
    ]  # fmt: skip


def compile_brief(report: Report, most: int) -> list[Table]:
    """Return the ``most`` functions and graph breaks with the most time, in few columns."""
    found = report.compilations
    if found is None:
        return []
    rows = tuple(
        (short(row.place), str(row.times), str(row.again), number(row.ms), _why(row))
        for row in found.rows[:most]
    )
    return [
        Table(f"Compiled by {found.compiler}",
              ("function", "times", "again", "ms", "why again"), rows, left=frozenset({0, 4})),
        Table("Graph breaks", ("line", "because of"),
              tuple(row[:2] for row in _broken(found, most)), left=frozenset({0, 1})),
    ]  # fmt: skip


def has_compiled_optimizer(report: Report) -> bool:
    """Return whether torch compiled an optimizer's step."""
    rows = report.compilations.rows if report.compilations is not None else ()
    return any("/torch/optim/" in row.file.replace("\\", "/") for row in rows)


def compile_lines(report: Report) -> list[str]:
    """Return what this version of the compiler does not report, in sentences."""
    found = report.compilations
    if found is None or not found.unknown:
        return []
    what = ", ".join(found.unknown)
    version = f" {found.version}" if found.version else ""
    return [f"Not known with this {found.compiler.split('.')[0]}{version}: {readable(what, 300)}."]


def _steps_again(found: CompileReport) -> Table:
    """Return the steps that compiled a function again, the longest compilations first."""
    steps = sorted((row for row in found.by_step if row[2]), key=lambda row: -row[1])
    apart = "" if found.within_ms else ", which is not in their time"
    rows = tuple(
        (str(step), number(ms), short(", ".join(names))) for step, ms, names in steps[:_ROWS]
    )
    more = f"; {_ROWS} of {counted(len(steps))}" if len(steps) > _ROWS else ""
    return Table(f"Steps that compiled again{apart} (counted from 0{more})",
                 ("step", "ms", "compiled again"), rows, left=frozenset({2}))  # fmt: skip


def _broken(found: CompileReport, most: int) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (f"{each.name} ({file_name(each.file)}:{each.line})", _in_words(each), str(each.count))
        for each in found.breaks[:most]
    )


def _why(row: CompileRow) -> str:
    why = [why_again(reason) for reason in row.reasons]
    if row.limit:
        why.append(f"reached {row.limit}: it then runs uncompiled")
    if row.failed:
        why.append(f"failed: {row.failed}")
    return "; ".join(why)


def _cells(row: CompileRow) -> tuple[str, ...]:
    return (
        short(row.place), str(row.times), str(row.again), number(row.ms), number(row.capture_ms),
        number(row.backend_ms), number(row.kernel_ms), _steps(row.steps), _why(row),
    )  # fmt: skip


def _total(found: CompileReport) -> tuple[str, ...]:
    sums = (
        sum(getattr(row, which) for row in found.rows)
        for which in ("capture_ms", "backend_ms", "kernel_ms")
    )
    return (
        "all", str(found.times), str(found.again), number(found.ms),
        *(number(ms) for ms in sums), plural(found.steps, "step"), "",
    )  # fmt: skip


def _steps(steps: Sequence[int]) -> str:
    shown = ", ".join(str(step) for step in steps[:_STEPS])
    return shown if len(steps) <= _STEPS else f"{shown}, {counted(len(steps) - _STEPS)} more"


def _caches(found: CompileReport) -> str:
    if not found.hits + found.misses:
        return "no cache on disk was used"
    where = f" in {readable(found.cache, 60)}" if found.cache else ""
    return f"cache{where}: {plural(found.hits, 'hit')}, {plural(found.misses, 'miss')}"


def _in_words(each: CompileBreak) -> str:
    return f"a call of {each.what}" if each.kind == "call" else each.what
