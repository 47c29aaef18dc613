"""The figures that conditions can name, of one run; docs/compare.md has their table.

A run without steps gives times and counts of the whole recording.  A function has the name in the
report, or ``file.py:name`` if several share that name.
"""

from collections.abc import Sequence

from fastprof.comparison.expressions import BYTES, NUMBER, SHARE, TIME, Name
from fastprof.comparison.runs import CPU, Run
from fastprof.errors import ConditionError
from fastprof.names import file_name
from fastprof.report.model_gpu import KernelRow
from fastprof.report.phase_names import ALIASES
from fastprof.report.rows import FunctionRow, SectionRow, StepTable

#: (value, kind of unit)
Figure = tuple[float, str]
_Found = tuple[float | None, str] | None

_QUANTILES = ("p50", "p95", "p99")


def figure(run: Run, name: Name) -> Figure:
    """Return the figure ``name``.

    Raises:
        ConditionError: (a ValueError) there is no such figure, or it was not recorded.
    """
    function = "p50" if name.function == "median" else name.function
    found: _Found
    if function == "section":
        found = _section(run, name.name, "")
    elif function == "function":
        found = _function(run, name.name, "")
    elif function == "kernel":
        found = _kernel(run, name.name, "")
    else:
        found = (
            _special(run, name.name, function)
            or _section(run, name.name, function)
            or _function(run, name.name, function)
            or _kernel(run, name.name, function)
        )
    if found is None:
        raise ConditionError(
            f"{run.label}: nothing is called {name.name!r}; there are the figures step, cpu, "
            f"throughput, gpu_util, memory, memory_share, overhead, steps, wall, compilations, "
            f"compiled_again and compiling, the sections {_names(run)}, and functions and kernels"
        )
    value, kind = found
    if value is None:
        raise ConditionError(f"{run.label}: {name.text!r} was not recorded")
    return value, kind


def _names(run: Run) -> str:
    names = [row.name for row in run.report.sections][:20]
    return ", ".join(f"{name!r:.60}" for name in names) or "(none)"


def _no_such(function: str, what: str) -> ConditionError:
    return ConditionError(f"{what} has no {function}()")


def _special(run: Run, name: str, function: str) -> _Found:
    report = run.report
    if name == "step":
        return _step(report.shown_steps, function)
    cpu = run.series.get(CPU)
    memory, compiled = run.memory, report.compilations
    plain: dict[str, tuple[float | None, str]] = {
        "cpu": (sum(cpu.values) / len(cpu.values) if cpu and cpu.values else None, TIME),
        "throughput": (_throughput(run), NUMBER),
        "gpu_util": (run.gpu_util, SHARE),
        "memory": (None if memory is None else float(memory[0]), BYTES),
        "memory_share": (memory[0] / memory[1] if memory and memory[1] else None, SHARE),
        "overhead": (report.overhead.share, SHARE),
        "steps": (float(report.shown_steps.measured), NUMBER),
        "wall": (report.wall_ms, TIME),
        "compilations": (None if compiled is None else float(compiled.times), NUMBER),
        "compiled_again": (None if compiled is None else float(compiled.again), NUMBER),
        "compiling": (None if compiled is None else compiled.ms, TIME),
    }
    found = plain.get(name)
    if found is not None and function not in ("", "mean"):
        raise _no_such(function, name)
    return found


def _step(steps: StepTable, function: str) -> _Found:
    if function in ("", "mean"):
        return steps.mean_ms, TIME
    if function in (*_QUANTILES, "min", "max"):
        return getattr(steps, f"{function}_ms"), TIME
    if function == "total":
        return steps.wall_ms, TIME
    if function == "count":
        return float(steps.measured), NUMBER
    raise _no_such(function, "step")


def _throughput(run: Run) -> float | None:
    mean = run.report.shown_steps.mean_ms
    if not mean:
        return None
    samples = run.samples_per_step
    return 1e3 / mean * (1.0 if samples is None else samples)


def _span_ms(run: Run) -> float:
    """Return the base of shares: a step, or the recording if it has no steps."""
    return (None if run.of_run else run.report.shown_steps.mean_ms) or run.report.wall_ms


def _section(run: Run, name: str, function: str) -> _Found:
    if all(r.name != name for r in run.report.sections):
        name = ALIASES.get(name, name)
    in_steps = next((r for r in run.report.shown_steps.rows if r.name == name), None)
    row: SectionRow | None = next((r for r in run.report.sections if r.name == name), None)
    if in_steps is not None and function in ("", "share"):
        return (in_steps.mean_ms, TIME) if not function else (in_steps.share, SHARE)
    if row is None:
        return None
    if function in ("", "total", "self", "gpu"):
        value = {"self": row.self_ms, "gpu": row.gpu_ms}.get(function, row.total_ms)
        return (value if function == "total" else _per_step(run, value)), TIME
    if function == "share":
        value = _per_step(run, row.total_ms)
        return (None if value is None else value / _span_ms(run)), SHARE
    if function == "count":
        return _per_step(run, row.count), NUMBER
    return getattr(row, f"{function}_ms"), TIME


def _per_step(run: Run, value: float | None) -> float | None:
    return None if value is None else value / (1 if run.of_run else run.steps or 1)


def _function(run: Run, name: str, function: str) -> _Found:
    rows = _functions_called(run.report.functions, name)
    if not rows:
        return None
    if len(rows) > 1:
        places = ", ".join(f"'{file_name(r.file)}:{r.qualname}'" for r in rows[:5])
        raise ConditionError(
            f"{run.label}: {len(rows)} functions are called {name!r}; name one of them: {places}"
        )
    row = rows[0]
    if function in ("", "total", "self", "gpu", "share"):
        value = {"self": row.self_ms, "gpu": row.gpu_ms}.get(function, row.cum_ms)
        if function == "total":
            return value, TIME
        value = _per_step(run, value)
        if function == "share":
            return (None if value is None else value / _span_ms(run)), SHARE
        return value, TIME
    if function == "count":
        return _per_step(run, row.calls + row.resumes), NUMBER
    if function == "mean":
        return row.cum_ms / (row.primitive_calls or row.calls or 1), TIME
    raise _no_such(function, f"the function {name!r}")


def _functions_called(rows: Sequence[FunctionRow], name: str) -> list[FunctionRow]:
    file, _, rest = name.partition(":")
    for wanted in (
        lambda r: r.qualname == name,
        lambda r: r.name == name,
        lambda r: file_name(r.file) == file and rest in (r.qualname, r.name, str(r.line)),
    ):
        found = [row for row in rows if wanted(row)]
        if found:
            return sorted(found, key=lambda row: (row.file, row.line))
    return []


def _kernel(run: Run, name: str, function: str) -> _Found:
    rows: list[KernelRow] = [row for row in run.report.kernels if row.name == name]
    if not rows:
        return None
    total = sum(row.total_ms for row in rows)
    count = sum(row.count for row in rows)
    if function in ("", "gpu"):
        return _per_step(run, total), TIME
    if function == "total":
        return total, TIME
    if function == "count":
        return _per_step(run, count), NUMBER
    if function == "mean":
        return (total / count if count else None), TIME
    raise _no_such(function, f"the kernel {name!r}")
