"""A slow step in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from fastprof.report.figures import counted, duration, plural
from fastprof.report.outlier_rows import OUTSIDE, OutlierFunction, OutlierSection, place, short
from fastprof.snapshot import Snapshot
from fastprof.snapshot.outliers import OutlierStep

#: A part below this share of the step's extra time gets no sentence.
_WORTH = 0.05

#: If functions exceed their section by this share of its excess, the rest of it took less.
_LESS = 0.02

_NAMED = 3

#: The text for a step without function detail.
NO_DETAIL = "no function detail for this step (functions were not sampled in it)"


@dataclass(frozen=True, slots=True)
class Context:
    gc_ms: float | None
    gc_typical_ms: float
    cpu_ms: float | None
    cpu_typical_ms: float
    switches: float | None
    switches_typical: float
    cpu_wait_ms: float | None
    cpu_wait_typical_ms: float

    @property
    def waited_ms(self) -> float | None:
        """How much longer than usual the thread waited for a CPU; None: not known."""
        return None if self.cpu_wait_ms is None else self.cpu_wait_ms - self.cpu_wait_typical_ms


def context_of(snapshot: Snapshot, index: int) -> Context:
    series = snapshot.steps.series
    row = series.row_of(index)

    def of(column: Sequence[int], scale: float) -> tuple[float | None, float]:
        if not 0 <= row < len(column):
            return None, 0.0
        return column[row] / scale, median(column) / scale

    return Context(
        *of(series.gc_ns, 1e6),
        *of(series.cpu_ns, 1e6),
        *_switches(series.switches, row),
        *of(series.cpu_wait_ns, 1e6),
    )


def _switches(column: Sequence[int], row: int) -> tuple[float | None, float]:
    """Return a step's context switches, and the mean of as many other steps.

    The count may include the steps before it that have none recorded.
    """
    if not 0 <= row < len(column):
        return None, 0.0
    first = row
    while first > 0 and column[first - 1] == 0:
        first -= 1
    others = len(column) - 1
    mean = (sum(column) - column[row]) / others if others else 0.0
    return float(column[row]), mean * (row + 1 - first)


def _function_text(row: OutlierFunction) -> str:
    if row.kind == "root":
        return "code outside of the functions seen"
    if row.kind == "section":
        return f"code of section {short(row.name)} itself"
    text = place(row.qualname or row.name, row.file, row.line)
    return f"{text} called by {row.caller}" if row.caller else text


def _excess_text(row: OutlierFunction) -> str:
    text = f"{_function_text(row)} +{duration(row.excess_ms)}"
    if row.calls > 2 * row.typical_calls + 1:
        text += f" ({plural(row.calls, 'call')} instead of {counted(row.typical_calls)})"
    return text


def sentences(
    step: OutlierStep,
    typical_ms: float,
    sections: Sequence[OutlierSection],
    functions: Sequence[OutlierFunction],
    context: Context,
    usual_known: bool,
    outside: str,
) -> tuple[str, ...]:
    wall_ms = step.wall_ns / 1e6
    excess = wall_ms - typical_ms
    factor = f" ({wall_ms / typical_ms:.1f}x)" if typical_ms else ""
    out = [f"step {step.index}: {duration(wall_ms)} instead of {duration(typical_ms)}{factor}"]
    waited = context.waited_ms
    # A wait for a CPU hits whatever function is running.
    by_chance = waited is not None and waited >= 0.5 * excess
    for section in sections:
        if section.excess_ms < _WORTH * excess:
            continue
        inside = "" if section.name == OUTSIDE else section.name
        rows = [
            row
            for row in functions
            if row.section == inside and row.excess_ms >= _WORTH * excess and not by_chance
        ][:_NAMED]
        named = [_excess_text(row) for row in rows]
        less = sum(row.excess_ms for row in rows) - section.excess_ms
        if rows and less > _LESS * section.excess_ms:  # or a part would exceed the whole
            named[-1] += f" (rest -{duration(less)})"
        where = f"in {short(section.name, 30)}" if inside else outside
        first = f"+{duration(section.excess_ms)} {where}"
        out.append(f"{first}: {named[0]}" if named else first)
        out += [f"... {where}: {text}" for text in named[1:]]
    out += _context_sentences(context, excess, by_chance=by_chance)
    if step.window_steps and not usual_known:
        out.append("the usual times of its functions are not known")
    elif step.window_steps > 1:
        out.append(
            f"the functions are those of the {step.window_steps} steps up to it (program too "
            "large to sample every step)"
        )
    elif step.window_steps == 0:
        out.append(NO_DETAIL)
    return tuple(out)


def _context_sentences(context: Context, excess_ms: float, *, by_chance: bool) -> Iterable[str]:
    if context.gc_ms is not None:
        more = context.gc_ms - context.gc_typical_ms
        if more >= _WORTH * excess_ms:
            yield f"garbage collection took +{duration(more)} of it"
    if context.cpu_ms is not None:
        on_cpu = max(0.0, context.cpu_ms - context.cpu_typical_ms)
        if on_cpu < 0.5 * excess_ms and not by_chance:
            yield f"only {duration(on_cpu)} of the extra time was CPU work; the rest was waiting"
    waited = context.waited_ms
    if waited is not None and waited >= _WORTH * excess_ms:
        text = f"for {duration(waited)} of it the thread was ready to run, but had no CPU"
        yield f"{text}; chance decided in which function it was" if by_chance else text
        return
    usually = context.switches_typical
    if context.switches is not None and context.switches >= 10 * (usually + 1):
        yield f"taken off the CPU {plural(context.switches, 'time')} (usually {usually:.0f})"
