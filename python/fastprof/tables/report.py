"""A report as tables of finished cells, for plain text and for terminals."""

import re
from collections.abc import Callable, Sequence

from fastprof.report.figures import counted, plural
from fastprof.report.functions import self_times
from fastprof.report.model import Report
from fastprof.report.model_gpu import HasGpu
from fastprof.report.origin import shown_name
from fastprof.report.outlier_text import NO_DETAIL
from fastprof.report.rows import (
    OWN_COST,
    UNACCOUNTED,
    FunctionRow,
    SectionRow,
    ThreadTable,
    call_counts,
    key_of,
)
from fastprof.report.targets import STEP_TARGETS, target_text
from fastprof.report.waits import busy_ms, computes, without_waits
from fastprof.tables.cells import Table, duration, number, percent, short, table_of, with_percent
from fastprof.tables.compilations import compile_tables
from fastprof.tables.gpu import gpu_tables, has_gpu
from fastprof.tables.lines import lines_table
from fastprof.tables.loaders import loader_tables
from fastprof.tables.operators import operator_tables
from fastprof.tables.overview import known_figures
from fastprof.tables.run_phases import phases_table
from fastprof.tables.stages import stages_table
from fastprof.tables.steps import split_table

#: Number of functions in the list.
FUNCTION_ROWS = 25
#: A section with a smaller share, which rounds to 0 %, has no row on one screen.
_NOTHING = 0.005
#: So have all sections without a row together, below this share.
_UNSEEN = 0.001
#: The name of a thread of which only the number is known.
_NUMBERED = re.compile(r"thread \d+")


def place(row: FunctionRow) -> str:
    """Return the place of a function: the last two parts of its path, and its line."""
    if row.kind == "section":
        return "(section)"
    if row.qualname == OWN_COST:
        return ""
    if not row.line:
        return "(C)" if row.file in ("", "~") else short(row.file)
    parts = row.file.replace("\\", "/").split("/")
    return f"{short('/'.join(parts[-2:]))}:{row.line}"


def summary(report: Report) -> list[str]:
    """Return the lines at the top: program, place and length of the recording."""
    meta = report.meta
    what = []
    for key, label in (
        ("python", "Python"),
        ("platform", ""),
        ("backend", "backend"),
        ("clock", "clock"),
        ("pid", "pid"),
        ("rank", "rank"),
    ):
        if meta.get(key) is not None:
            what.append(f"{label} {short(str(meta[key]))}".strip())
    lines = [f"fastprof report: {duration(report.wall_ms)} recorded"]
    if what:
        lines.append(", ".join(what))
    return lines


def steps_line(report: Report) -> str:
    """Return the statistics of single steps in one line."""
    steps = report.shown_steps
    if steps.wall_ns is None:
        return f"{plural(steps.count, 'step')}, all warm-up"
    hooked = report.steps.measured if report.plain is not None else 0
    measured = hooked + steps.measured
    which = f"{plural(measured, 'step')} measured, {counted(steps.count - measured)} skipped"
    if report.plain is not None:
        which += f", {counted(hooked)} with functions; of the others, ms per step: "
    else:
        which += "; ms per step: "
    return (
        f"{which}mean {number(steps.mean_ms)}, min {number(steps.min_ms)}, "
        f"p50 {number(steps.p50_ms)}, p95 {number(steps.p95_ms)}, p99 {number(steps.p99_ms)}, "
        f"max {number(steps.max_ms)}, cv {with_percent(steps.cv)}"
    )


def all_tables(report: Report) -> list[Table]:
    """Return the tables that have rows, in reading order."""
    made = (
        _overview(report),
        phases_table(report),
        stages_table(report),
        *compile_tables(report),
        steps_table(report),
        split_table(report),
        _outliers(report),
        sections_table(report),
        _functions(report),
        lines_table(report),
        *gpu_tables(report),
        *operator_tables(report),
        *loader_tables(report),
        threads_table(report),
        *worker_function_tables(report, FUNCTION_ROWS),
    )
    return [table for table in made if table.rows]


def _functions(report: Report) -> Table:
    found = without_waits(report)
    title = "Functions, most self time first ({} of {})"
    if found.hidden_ms:
        title += f"; {duration(found.hidden_ms)} of waiting in other threads are left out"
    return functions(found.rows, title, FUNCTION_ROWS, report.mark)


def _overview(report: Report) -> Table:
    if report.steps.mean_ms is None and not has_gpu(report):
        return Table("", (), ())
    return Table("Overview", ("figure", "value"), known_figures(report), left=frozenset({0, 1}))


def steps_table(report: Report) -> Table:
    """Return the sections of a step; without rows if no step was measured."""
    steps = report.shown_steps
    if steps.wall_ns is None:
        return Table("", (), ())
    rows: list[tuple[str, ...]] = [
        (short(r.name), "" if r.steps is None else str(r.steps), number(r.total_ms),
         number(r.mean_ms), percent(r.share), target_text(r.name))
        for r in steps.rows
    ]  # fmt: skip
    rows.append(
        ("step", str(steps.measured), number(steps.wall_ms), number(steps.mean_ms), "100", "")
    )  # fmt: skip
    headers = ["section", "steps", "total ms", "ms per step", "share %", "target %"]
    if not any(r.name in STEP_TARGETS and r.name != UNACCOUNTED for r in steps.rows):
        headers.pop()
        rows = [row[:-1] for row in rows]
    how = " (wall time as measured)"
    if any(r.name == OWN_COST for r in steps.rows):
        how = " (wall time; fastprof's cost is a row)"
    return Table(
        f"Where a step goes{how}", tuple(headers), tuple(rows), spare=("steps",), total=True
    )


#: fastprof's own sections whose names say little to a first reader.
_IN_WORDS = {"h2d": "h2d (to the GPU)"}


def steps_brief(report: Report, limit: int) -> Table:
    """Return the sections of a step in few columns; without steps, the run's sections.

    Sections beyond ``limit`` and those with almost no time share one row, so that the rows add up;
    one alone has its name.
    """
    steps = report.shown_steps
    if steps.wall_ns is not None:
        headers = ("where a step goes", "ms", "%")
        parts = [(r.name, r.mean_ms, r.share or 0.0) for r in steps.rows]
    else:
        headers = ("sections", "ms", "%")
        parts = [(r.name, r.total_ms, r.share or 0.0) for r in report.sections if r.total_ms]
    some = [part for part in parts if part[2] >= _NOTHING] or parts
    largest = sorted(some, key=lambda part: -part[1])[: limit if len(some) > limit + 1 else None]
    others = [part for part in parts if part not in largest]
    ms, share = sum(part[1] for part in others), sum(part[2] for part in others)
    if len(others) == 1 and share >= _UNSEEN:
        largest, others = parts, []
    rows = [part for part in parts if part in largest]
    if others and share >= _UNSEEN:
        rows.append((plural(len(others), "other"), ms, share))
    cells = [
        (_IN_WORDS.get(name, short(name)), number(ms), percent(share)) for name, ms, share in rows
    ]
    return Table("", headers, tuple(cells))


def _outliers(report: Report) -> Table:
    rows: list[tuple[str, ...]] = []
    for outlier in report.shown_steps.outliers:
        first = (
            str(outlier.index),
            number(outlier.wall_ms),
            number(outlier.typical_ms),
            number(outlier.ratio, 1),
        )
        # The first sentence repeats these cells.
        said = [sentence for sentence in outlier.sentences[1:] if sentence != NO_DETAIL]
        for i, sentence in enumerate(said or ("",)):
            rows.append((*(first if i == 0 else ("",) * 4), sentence))
    unseen = sum(NO_DETAIL in outlier.sentences for outlier in report.shown_steps.outliers)
    if unseen:
        rows.append((*("",) * 4, f"{NO_DETAIL.replace('this step', f'{unseen} of these')}"))
    return Table(
        "Slowest steps and what was different (steps counted from 0)",
        ("step", "ms", "usual ms", "times", "what was different"),
        tuple(rows),
        left=frozenset({4}),
    )


def sections_table(report: Report) -> Table:
    """Return all sections with the statistics of single entries."""
    columns: list[tuple[str, Callable[[SectionRow], str]]] = [
        ("section", lambda r: short(r.name)),
        ("count", lambda r: str(r.count)),
        ("total ms", lambda r: number(r.total_ms)),
        ("self ms", lambda r: number(r.self_ms)),
        ("share %", lambda r: percent(r.share)),
        ("mean ms", lambda r: number(r.mean_ms)),
        ("min ms", lambda r: number(r.min_ms)),
        ("p50 ms", lambda r: number(r.p50_ms)),
        ("p95 ms", lambda r: number(r.p95_ms)),
        ("p99 ms", lambda r: number(r.p99_ms)),
        ("max ms", lambda r: number(r.max_ms)),
        *(_GPU_COLUMNS if any(r.gpu for r in report.sections) else ()),
        ("errors", lambda r: str(r.errors)),
    ]
    spare = ("errors",) if not any(r.errors for r in report.sections) else ()
    return table_of(
        "Sections, in order of first use",
        columns,
        report.sections,
        spare=(*spare, "min ms", "max ms", "p99 ms", "self ms", "mean ms"),
    )


#: For sections and functions; including their callees.
_GPU_COLUMNS: tuple[tuple[str, Callable[[HasGpu], str]], ...] = (
    ("gpu ms", lambda r: number(r.gpu_ms)),
    ("kernels", lambda r: "n/a" if r.kernels is None else str(r.kernels)),
    ("blocked ms", lambda r: number(r.blocked_ms)),
)


def functions(rows: Sequence[FunctionRow], title: str, limit: int, mark: str = "") -> Table:
    """Return a table of the first ``limit`` functions; ``title`` has places for two counts.

    ``mark``: before the names of columns that are estimated.
    """
    shown = rows[:limit]
    columns: list[tuple[str, Callable[[FunctionRow], str]]] = [
        ("function", lambda r: short(r.qualname or r.name)),
        (f"{mark}calls", calls),
        ("resumes", lambda r: str(r.resumes)),
        (f"{mark}self ms", lambda r: number(r.self_ms)),
        ("share %", lambda r: percent(r.share)),
        (f"{mark}cum ms", lambda r: number(r.cum_ms)),
        ("raw self ms", lambda r: number(r.raw_self_ms)),
        ("raw cum ms", lambda r: number(r.raw_cum_ms)),
        *(_GPU_COLUMNS if any(r.gpu for r in shown) else ()),
        ("defined at", place),
    ]
    if not any(r.resumes for r in shown):
        columns = [column for column in columns if column[0] != "resumes"]
    return table_of(
        title.format(len(shown), len(rows)),
        columns,
        shown,
        frozenset({0, len(columns) - 1}),
        ("raw self ms", "raw cum ms", "resumes", "share %", "kernels", "blocked ms"),
    )


def functions_brief(rows: Sequence[FunctionRow], limit: int, mark: str = "") -> Table:
    """Return the first ``limit`` functions in few columns; ``mark``: as in :func:`functions`."""
    columns: list[tuple[str, Callable[[FunctionRow], str]]] = [
        ("function", lambda r: short(shown_name(key_of(r)))),
        (f"{mark}calls", calls),
        (f"{mark}self ms", lambda r: number(r.self_ms)),
        ("%", lambda r: percent(r.share)),
        ("defined at", place),
    ]
    return table_of("", columns, rows[:limit], frozenset({0, 4}), (f"{mark}calls",))


def calls(row: FunctionRow) -> str:
    """Return the calls of a function, as ``total/primitive`` if it was recursive."""
    total, primitive = call_counts(row)
    return str(total) if total == primitive else f"{total}/{primitive}"


def threads_table(report: Report) -> Table:
    """Return the work of each thread; without rows if there was only one.

    Threads of the same name are one row with their number.
    """
    if len(report.threads) < 2:
        return Table("", (), ())
    alike: dict[tuple[str, bool], list[ThreadTable]] = {}
    for thread in report.threads:
        alike.setdefault((thread_name(thread.name), thread.ended), []).append(thread)
    headers = ("thread", "total ms", "raw total ms", "functions", "most self time in")
    rows = tuple(
        (_threads_name(name, ended, len(threads)), number(sum(t.total_ms for t in threads)),
         number(sum(t.raw_total_ms for t in threads)), *_most_self_time(threads))
        for (name, ended), threads in alike.items()
    )  # fmt: skip
    return Table("Threads", headers, rows, frozenset({0, 4}), spare=("raw total ms", "functions"))


def other_threads_text(report: Report, shown: Sequence[int], least: float) -> str:
    """Return in a sentence what other threads than those ``shown`` compute.

    Args:
        least: leave out threads with a smaller share of the time of the first one shown.
    """
    if not shown or len(report.threads) < 2:
        return ""
    steps = report.steps.measured
    whole_ms = report.steps.wall_ms if steps else report.threads[shown[0]].total_ms
    alike: dict[str, list[ThreadTable]] = {}
    for i, thread in enumerate(report.threads):
        if i not in shown:
            alike.setdefault(thread_name(thread.name), []).append(thread)
    busy = [(sum(map(busy_ms, threads)), name, threads) for name, threads in alike.items()]
    parts = [
        f"{_threads_name(name, False, len(threads))} {duration(ms / max(1, steps))} "
        f"({_most_self_time(threads, waits=False)[1]})"
        for ms, name, threads in sorted(busy, key=lambda row: -row[0])
        if whole_ms and ms >= least * whole_ms
    ]
    per = " per step" if steps else ""
    return f"Other threads, without waits{per}: {', '.join(parts)}." if parts else ""


def worker_function_tables(report: Report, limit: int) -> list[Table]:
    """Return the functions of other processes, one table per loader."""
    # Braces in the names must not become format fields.
    names = [short(t.name).replace("{", "{{").replace("}", "}}") for t in report.worker_functions]
    return [
        functions(t.functions, f"Functions in other processes: {name} ({{}} of {{}})", limit)
        for t, name in zip(report.worker_functions, names, strict=True)
    ]


def thread_name(name: str) -> str:
    """Return a thread's name; the number of one without a name says nothing, and may come again."""
    return "unnamed" if _NUMBERED.fullmatch(name) else short(name)


def _threads_name(name: str, ended: bool, count: int) -> str:
    said = [plural(count, "thread")] if count > 1 or name == "unnamed" else []
    # The name of "all ended threads" already says so.
    said += ["ended"] if ended and "ended" not in name else []
    return f"{name} ({', '.join(said)})" if said else name


def _most_self_time(threads: Sequence[ThreadTable], *, waits: bool = True) -> tuple[str, str]:
    """Return the number of functions of these threads, and the one with most self time."""
    times: dict[tuple[str, str, int], float] = {}
    for key, self_ms in self_times(thread.functions for thread in threads):
        if waits or computes(key):
            name = key.qualname, key.file, key.line
            times[name] = times.get(name, 0.0) + self_ms
    most = max(times, key=lambda key: times[key], default=("", "", 0))
    return str(len(times)), short(most[0])
