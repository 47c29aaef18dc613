"""The slowest steps, and their differences from usual steps.

The usual time is the mean of the steps that were not slow; a step is an outlier if it took more
than 1.5 times the median.  The recorder samples functions in windows of steps; if every window
contains a slow step, the mean of all other steps is the usual time.  For an outlier, every calling
context has its time and its usual time; functions and top-level sections sum up the difference.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from fastprof.names import elided, file_name, readable
from fastprof.report.figures import counted, duration, plural
from fastprof.report.notes import has_functions
from fastprof.report.tree import top_sections, upward
from fastprof.snapshot import Key, NodeTable, Snapshot
from fastprof.snapshot.outliers import OutlierRow, OutlierSnapshot, OutlierStep
from fastprof.snapshot.stages import Stage

#: A step slower than this many times the median is an outlier.
SLOW = 1.5
#: Functions listed per outlier.
_FUNCTIONS = 20
#: A part below this share of the step's extra time gets no sentence.
_WORTH = 0.05
#: ... and a function below this share is not listed.
_LISTED = 0.01
#: If functions exceed their section by this share of its excess, the rest of it took less.
_LESS = 0.02
#: If a tree's time differs by more from that of the measured steps, it covers other time too.
_STEPS_ONLY = 1.2
_NAMED = 3
#: Outside of all sections.
OUTSIDE = "(unaccounted)"
#: The text for a step without function detail.
NO_DETAIL = "no function detail for this step (functions were not sampled in it)"


@dataclass(frozen=True, slots=True)
class OutlierSection:
    """A top-level section in an outlier, or ``(unaccounted)``; ``typical_ms`` is its usual time."""

    name: str
    ms: float
    typical_ms: float
    excess_ms: float


@dataclass(frozen=True, slots=True)
class OutlierFunction:
    """Self time of a function in an outlier, in one top-level section.

    ``kind`` is as in :class:`~fastprof.report.model.FunctionRow`, or ``section`` (its own code) or
    ``root`` (no function was seen).  ``section`` is empty outside of sections; ``caller`` is ``name
    (file:line)`` of the Python function that called a C function.
    """

    qualname: str
    name: str
    file: str
    line: int
    kind: str
    section: str
    caller: str
    ms: float
    typical_ms: float
    excess_ms: float
    calls: int
    typical_calls: float


@dataclass(frozen=True, slots=True)
class Outlier:
    """One step that was much slower than usual, as measured.

    ``index`` counts all steps from 0, ``start_ms`` counts from the start of the first step.
    ``sections`` add up to ``wall_ms``.  ``functions`` took longer than usual by at least 1 % of the
    step's extra time, longest first; they cover the last ``window_steps`` steps, including this
    one: more than one if the tree is too large to sample after each step, 0 if the recorder did not
    sample.  ``gc_ms``, ``cpu_ms`` and ``switches`` are None if unknown.  ``sentences`` describe the
    step in words.
    """

    index: int
    start_ms: float
    wall_ms: float
    typical_ms: float
    ratio: float
    sections: tuple[OutlierSection, ...]
    functions: tuple[OutlierFunction, ...]
    window_steps: int
    gc_ms: float | None
    cpu_ms: float | None
    switches: int | None
    sentences: tuple[str, ...]


def find_outliers(snapshot: Snapshot, median_ms: float | None) -> tuple[Outlier, ...]:
    """Return the kept steps that took more than 1.5 times ``median_ms``, slowest first.

    Of a run with stages, those that are slow in their stage.
    """
    kept = snapshot.outliers
    if kept is None or median_ms is None:
        return ()
    if snapshot.stages:
        return _in_stages(snapshot, kept, snapshot.stages)
    slow = [step for step in kept.kept if not step.plain and step.wall_ns > SLOW * median_ms * 1e6]
    if not slow:
        return ()
    usual = _Usual(snapshot, kept, slow, median_ms)
    slow.sort(key=lambda step: (-step.wall_ns, step.index))
    return tuple(_outlier(snapshot, usual, step) for step in slow)


def _in_stages(
    snapshot: Snapshot, kept: OutlierSnapshot, stages: Sequence[Stage]
) -> tuple[Outlier, ...]:
    """Return the steps that are slow in their stage; the usual times of its functions are unknown.

    The recorder's usual values are those of all stages.
    """
    found = []
    for stage, end in zip(stages, [s.first for s in stages[1:]] + [None], strict=True):
        if not stage.timed:
            continue
        sections = {name: ns / stage.timed / 1e6 for name, ns in stage.sections}
        usual = _usual_of(snapshot, kept, stage.sum_ns / stage.timed / 1e6, sections)
        least_ns = SLOW * max(usual.wall_ms * 1e6, stage.p50_ns)
        found += [
            _outlier(snapshot, usual, step)
            for step in kept.kept
            if step.wall_ns > least_ns
            and stage.first <= step.index
            and (not end or step.index < end)
        ]
    return tuple(sorted(found, key=lambda row: (-row.wall_ms, row.index)))


def find_plain_outliers(
    snapshot: Snapshot,
    median_ms: float | None,
    mean_ms: float,
    sections: Mapping[str, float],
    were_off: frozenset[str] = frozenset(),
) -> tuple[Outlier, ...]:
    """Return the same of the steps without the function hook; no function of them is known.

    Args:
        snapshot: its steps are the plain ones.
        mean_ms: the time of a plain step.
        sections: that of its top-level sections in ms.
        were_off: sections that some of these steps did not time; in all others they are.
    """
    kept = snapshot.outliers
    if kept is None or median_ms is None or snapshot.stages:
        return ()
    usual = _usual_of(snapshot, kept, mean_ms, sections)
    return tuple(
        _outlier(snapshot, usual, step, were_off)
        for step in sorted(kept.kept, key=lambda step: (-step.wall_ns, step.index))
        if step.plain and step.wall_ns > SLOW * median_ms * 1e6
    )


def _usual_of(
    snapshot: Snapshot, kept: OutlierSnapshot, wall_ms: float, sections: Mapping[str, float]
) -> "_Usual":
    """Return usual times that the recorder's sums do not have."""
    usual = _Usual(snapshot, kept, (), wall_ms)
    usual.wall_ms, usual.sections = wall_ms, dict(sections)
    usual.row_steps = usual.steps = 0
    return usual


class _Usual:
    """Sums over usual steps, without the outliers among them."""

    def __init__(
        self,
        snapshot: Snapshot,
        kept: OutlierSnapshot,
        slow: Sequence[OutlierStep],
        median_ms: float,
    ) -> None:
        self.tree = snapshot.threads[kept.thread].nodes
        keys = snapshot.keys
        tops = top_sections(self.tree, keys)
        self.in_section = [keys[top].name if top >= 0 else "" for top in tops]
        among = [step for step in slow if step.usual]
        steps = kept.usual_steps - len(among)
        self.wall_ms = median_ms
        self.sections: dict[str, float] = {}
        if steps > 0:
            ns = kept.usual_ns - sum(step.wall_ns for step in among)
            self.wall_ms = max(0, ns) / steps / 1e6
            self.sections = _by_name(snapshot, kept.usual_sections)
            for step in among:
                for name, ms in _by_name(snapshot, step.sections).items():
                    self.sections[name] = max(0.0, self.sections.get(name, 0.0) - ms)
            self.sections = {name: ms / steps for name, ms in self.sections.items()}
        windows = [step for step in slow if step.window_usual]
        self.row_steps = kept.usual_row_steps - sum(step.window_steps for step in windows)
        self._among: dict[int, tuple[int, int]] = {}
        for row in (row for step in windows for row in step.rows):
            ns, calls = self._among.get(row.node, (0, 0))
            self._among[row.node] = (ns + row.self_ns, calls + row.calls)
        steps_ns = snapshot.steps.sum_ns
        spent = sum(
            ns for ns, phase in zip(self.tree.self_ns, _phases(self.tree), strict=True) if not phase
        )
        #: All steps in the tree; 0: it covers something else.
        same = steps_ns <= _STEPS_ONLY * spent and spent <= _STEPS_ONLY * steps_ns
        self.steps = snapshot.steps.measured if same else 0

    def known(self, step: OutlierStep) -> bool:
        """Return whether a function's usual time is known."""
        return self.row_steps > 0 or self.steps > step.window_steps

    def of_node(self, step: OutlierStep, row: OutlierRow) -> tuple[float, float]:
        """Return time (ns) and calls of the row's node per usual step, or per other step."""
        if self.row_steps > 0:
            ns, calls = self._among.get(row.node, (0, 0))
            ns, calls = row.usual_ns - ns, row.usual_calls - calls
            steps = self.row_steps
        else:
            # Every window had a slow step.
            ns = self.tree.self_ns[row.node] - row.self_ns
            calls = self.tree.calls[row.node] - row.calls
            steps = self.steps - step.window_steps
        return max(0, ns) / steps, max(0, calls) / steps


def _phases(nodes: NodeTable) -> Sequence[int]:
    return nodes.phase or (0,) * len(nodes)


def _by_name(snapshot: Snapshot, rows: Iterable[tuple[int, int]]) -> dict[str, float]:
    out: dict[str, float] = {}
    for key, ns in rows:
        name = snapshot.keys[key].name
        out[name] = out.get(name, 0.0) + ns / 1e6
    return out


def _outlier(
    snapshot: Snapshot,
    usual: _Usual,
    step: OutlierStep,
    were_off: frozenset[str] = frozenset(),
) -> Outlier:
    wall_ms = step.wall_ns / 1e6
    context = _context(snapshot, step.index)
    if not were_off.isdisjoint(_by_name(snapshot, step.sections)):
        were_off = frozenset()  # not in this step
    sections = _section_rows(snapshot, usual, step, were_off)
    functions = _function_rows(snapshot, usual, step) if usual.known(step) else ()
    return Outlier(
        index=step.index,
        start_ms=step.start_ns / 1e6,
        wall_ms=wall_ms,
        typical_ms=usual.wall_ms,
        ratio=wall_ms / usual.wall_ms if usual.wall_ms else 0.0,
        sections=sections,
        functions=functions,
        window_steps=step.window_steps,
        gc_ms=context.gc_ms,
        cpu_ms=context.cpu_ms,
        switches=None if context.switches is None else round(context.switches),
        sentences=_sentences(
            step,
            usual.wall_ms,
            sections,
            functions if has_functions(snapshot) else (),
            context,
            usual.known(step),
            "in no section that was on" if were_off else "outside of sections",
        ),
    )


# ---- the series' data on one step ----


@dataclass(frozen=True, slots=True)
class _Context:
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


def _context(snapshot: Snapshot, index: int) -> _Context:
    series = snapshot.steps.series
    row = series.row_of(index)

    def of(column: Sequence[int], scale: float) -> tuple[float | None, float]:
        if not 0 <= row < len(column):
            return None, 0.0
        return column[row] / scale, median(column) / scale

    return _Context(
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


# ---- rows ----


def _section_rows(
    snapshot: Snapshot, usual: _Usual, step: OutlierStep, were_off: frozenset[str]
) -> tuple[OutlierSection, ...]:
    here = _by_name(snapshot, step.sections)
    timed = {name: ms for name, ms in usual.sections.items() if name not in were_off}
    names = dict.fromkeys([*here, *timed])
    rows = [
        OutlierSection(n, ms, typical, ms - typical)
        for n in names
        for ms, typical in [(here.get(n, 0.0), timed.get(n, 0.0))]
    ]
    ms = step.wall_ns / 1e6 - sum(here.values())
    typical = usual.wall_ms - sum(timed.values())
    rows.append(OutlierSection(OUTSIDE, ms, typical, ms - typical))
    return tuple(sorted(rows, key=lambda r: -r.excess_ms))


@dataclass(slots=True)
class _Sum:
    ns: float = 0.0
    typical_ns: float = 0.0
    calls: int = 0
    typical_calls: float = 0.0


def _function_rows(
    snapshot: Snapshot, usual: _Usual, step: OutlierStep
) -> tuple[OutlierFunction, ...]:
    sums: dict[tuple[Key, str, str], _Sum] = {}
    least_ms = _LISTED * (step.wall_ns / 1e6 - usual.wall_ms)
    for row in step.rows:
        key = snapshot.keys[usual.tree.key[row.node]]
        caller = (
            "" if key.kind in ("python", "section", "root") else _caller(snapshot, usual, row.node)
        )
        typical_ns, typical_calls = usual.of_node(step, row)
        group = sums.setdefault((key, usual.in_section[row.node], caller), _Sum())
        group.ns += row.self_ns
        group.calls += row.calls
        group.typical_ns += typical_ns * step.window_steps
        group.typical_calls += typical_calls * step.window_steps
    rows = [
        OutlierFunction(
            qualname=key.qualname,
            name=key.name,
            file=key.file,
            line=key.line,
            kind=key.kind,
            section=section,
            caller=caller,
            ms=s.ns / 1e6,
            typical_ms=s.typical_ns / 1e6,
            excess_ms=(s.ns - s.typical_ns) / 1e6,
            calls=s.calls,
            typical_calls=s.typical_calls,
        )
        for (key, section, caller), s in sums.items()
        if s.ns / 1e6 - s.typical_ns / 1e6 >= least_ms
    ]
    return tuple(sorted(rows, key=lambda r: -r.excess_ms)[:_FUNCTIONS])


def _caller(snapshot: Snapshot, usual: _Usual, node: int) -> str:
    """Return the nearest Python function above."""
    above = (snapshot.keys[usual.tree.key[i]] for i in islice(upward(usual.tree, node), 1, None))
    key = next((key for key in above if key.kind == "python"), None)
    return "" if key is None else _place(key.qualname or key.name, key.file, key.line)


# ---- words ----


def _short(name: str, limit: int = 50) -> str:
    return elided(readable(name, 1000), limit)


def _place(name: str, file: str, line: int) -> str:
    return f"{_short(name)} ({_short(file_name(file), 30)}:{line})" if line else _short(name)


def _function_text(row: OutlierFunction) -> str:
    if row.kind == "root":
        return "code outside of the functions seen"
    if row.kind == "section":
        return f"code of section {_short(row.name)} itself"
    text = _place(row.qualname or row.name, row.file, row.line)
    return f"{text} called by {row.caller}" if row.caller else text


def _excess_text(row: OutlierFunction) -> str:
    text = f"{_function_text(row)} +{duration(row.excess_ms)}"
    if row.calls > 2 * row.typical_calls + 1:
        text += f" ({plural(row.calls, 'call')} instead of {counted(row.typical_calls)})"
    return text


def _sentences(
    step: OutlierStep,
    typical_ms: float,
    sections: Sequence[OutlierSection],
    functions: Sequence[OutlierFunction],
    context: _Context,
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
        where = f"in {_short(section.name, 30)}" if inside else outside
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


def _context_sentences(context: _Context, excess_ms: float, *, by_chance: bool) -> Iterable[str]:
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
