"""A part of one run, as a recording: its steps, sections and functions from the history.

The history has sums per segment, so a part begins and ends with segments.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate, compress

from fastprof.report.figures import plural, step_number
from fastprof.report.threads import training_thread
from fastprof.snapshot import (
    Histogram,
    Key,
    NodeTable,
    SectionStats,
    Snapshot,
    StepRow,
    Steps,
    ThreadTree,
)
from fastprof.snapshot.history import Contexts, History, Segment, SegmentSteps, bounds, joined
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS, PhaseTime
from fastprof.snapshot.steps import MAX_SERIES, StepSeries

_NONE = "the run was not kept over time: it is shorter than a few seconds, or of an earlier version"


def steps_of(snapshot: Snapshot) -> range:
    """Return the numbers, from 0 on, of the steps in the history.

    Raises:
        ValueError: there is no history.
    """
    segments = _history(snapshot).segments
    return range(segments[0].first, segments[-1].first + segments[-1].steps)


def steps_since(snapshot: Snapshot, ns: int) -> int:
    """Return the number of the first step of the segment at ``ns`` since the start of the run.

    Raises:
        ValueError: there is no history, or the run ended before.
    """
    segments = _history(snapshot).segments
    for segment in segments:
        if segment.end_ns > ns:
            return segment.first
    raise ValueError(f"the run ended {_at(_history(snapshot), segments[-1].end_ns)}")


def steps_at(snapshot: Snapshot, clock: str) -> int:
    """Return the number of the first step of the segment at a time of day such as ``14:03``.

    Of several days, the last one counts.

    Raises:
        ValueError: it is no time, or not one of the run.
    """
    history = _history(snapshot)
    ended = history.began_unix_ms / 1000 + history.segments[-1].end_ns / 1e9
    for form in ("%H:%M:%S", "%H:%M"):
        try:
            of_day = time.strptime(clock, form)
        except ValueError:
            continue
        day = time.localtime(ended)
        for back in (0, 1):
            parts = (*day[:2], day[2] - back, *of_day[3:6], 0, 0, -1)
            ns = round((time.mktime(parts) - history.began_unix_ms / 1000) * 1e9)
            if ns <= history.segments[-1].end_ns:
                return steps_since(snapshot, max(0, ns))
    raise ValueError(f"{clock!r:.80} is no time, expected one such as 14:03 or 14:03:20")


def steps_of_last(snapshot: Snapshot, seconds: float) -> int:
    """Return the number of the first step of the segment ``seconds`` before the end of the run.

    Raises:
        ValueError: there is no history.
    """
    end_ns = _history(snapshot).segments[-1].end_ns
    return steps_since(snapshot, max(0, end_ns - max(1, round(seconds * 1e9))))


def part_of_run(snapshot: Snapshot, wanted: range) -> Snapshot:
    """Return the recording of the segments that have a step of ``wanted``.

    Args:
        wanted: numbers of steps, from 0 on.

    Raises:
        ValueError: there is no history, or it has none of these steps.
    """
    history = _history(snapshot)
    there = steps_of(snapshot)
    segments = [
        segment
        for segment in history.segments
        if segment.first < wanted.stop and segment.first + segment.steps > wanted.start
    ]
    if not segments or not wanted:
        raise ValueError(
            f"no step from {wanted.start + 1} to {wanted.stop}: the run has {there.start + 1} to "
            f"{there.stop}"
        )
    whole = reduce(joined, segments)
    number = max(0, training_thread(snapshot))
    tree = _tree(snapshot, history.contexts, whole, number)
    plain = None
    if whole.plain.count:
        plain = _steps(snapshot, history, [s.plain for s in segments], plain=True, of=whole)
    phases = tuple(PhaseTime(RUN_PHASES[i], ns, 1) for i, ns in enumerate(whole.phases_ns) if ns)
    return Snapshot(
        meta=dict(snapshot.meta),
        duration_ns=whole.end_ns - whole.start_ns,
        keys=snapshot.keys,
        threads=(tree,),
        sections=_sections(snapshot.keys, tree.nodes),
        steps=_steps(snapshot, history, [s.full for s in segments], plain=False, of=whole),
        plain_steps=plain,
        calibration=snapshot.calibration,
        notes=(_note(history, whole, len(segments), there),),
        phases=phases,
        stages=(),
        sources=snapshot.sources,
    )


def _history(snapshot: Snapshot) -> History:
    if snapshot.history is None or not snapshot.history.segments:
        raise ValueError(_NONE)
    return snapshot.history


def moment(history: History, ns: int) -> str:
    """Return when ``ns`` after the start of the run was, by the clock of this machine."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(history.began_unix_ms / 1000 + ns / 1e9))
    except (OverflowError, ValueError, OSError):
        return "?"


def _at(history: History, ns: int) -> str:
    return f"at {moment(history, ns)}"


def _note(history: History, whole: Segment, parts: int, there: range) -> str:
    times = whole.full.count + whole.plain.count
    known = "" if times == whole.steps else f", of which {step_number(times)} have times"
    return (
        f"Only steps {step_number(whole.first + 1)} to {step_number(whole.first + whole.steps)} of "
        f"{step_number(there.stop)}"
        f"{known}, from {moment(history, whole.start_ns)} to {moment(history, whole.end_ns)}: "
        f"{plural(parts, 'segment')} of the history, which begin and end with no other step. "
        "Memory, loaders, lines and work of GPUs are not kept over time; a function of less than "
        "0.1 % of a segment counts to its caller."
    )


def _steps(
    snapshot: Snapshot,
    history: History,
    parts: Sequence[SegmentSteps],
    *,
    plain: bool,
    of: Segment,
) -> Steps:
    # Joining the whole range leaves 16 sampled steps of it; those of each segment are more.
    sums = of.plain if plain else of.full
    recorded = snapshot.plain_steps if plain else snapshot.steps
    series = _within(recorded.series if recorded else StepSeries(), of)
    if len(series) < sums.count:
        sampled = _sampled(parts, history)
        series = sampled if len(sampled) > len(series) else series
    apart = 0 if plain else of.plain.count
    return Steps(
        count=sums.count + apart,
        apart=apart,
        sum_ns=sums.sum_ns,
        sum_sq=sums.sum_sq,
        min_ns=sums.min_ns,
        max_ns=sums.max_ns,
        hist=Histogram(tuple((*bounds(number), n) for number, n in sums.hist)),
        rows=tuple(StepRow(history.sections[i], n, ns) for i, n, ns in sums.rows),
        series=series,
        thread=0,
    )


def _within(series: StepSeries, of: Segment) -> StepSeries:
    """Return the steps of the last 4096 that are in the range."""
    numbers = series.numbers()
    kept = [of.first <= number < of.first + of.steps for number in numbers]
    if not any(kept):
        return StepSeries()

    def only(column: Sequence[int]) -> tuple[int, ...]:
        return tuple(compress(column, kept)) if column else ()

    left = only(numbers)
    return replace(
        series,
        first=left[0],
        number=left,
        start_ns=only(series.start_ns),
        wall_ns=only(series.wall_ns),
        sections=tuple((key, only(column)) for key, column in series.sections),
        cpu_ns=only(series.cpu_ns),
        gc_ns=only(series.gc_ns),
        switches=only(series.switches),
        faults=only(series.faults),
        cpu_wait_ns=only(series.cpu_wait_ns),
        communication_ns=only(series.communication_ns),
        autograd_ns=only(series.autograd_ns),
    )


def _sampled(parts: Sequence[SegmentSteps], history: History) -> StepSeries:
    samples = [part.sampled for part in parts if len(part.sampled)]
    while sum(map(len, samples)) > MAX_SERIES:
        del samples[::2]
    number = [n for sample in samples for n in sample.number]
    if not number:
        return StepSeries()
    wall = [ns for sample in samples for ns in sample.wall_ns]
    columns: list[list[int]] = [[] for _ in history.sections]
    for sample in samples:
        for i, column in enumerate(columns):
            known = i < len(sample.sections)
            column += sample.sections[i] if known else (0,) * len(sample)
    waits = [ns for sample in samples for ns in sample.cpu_wait_ns]
    collected = [ns for sample in samples for ns in sample.gc_ns]
    return StepSeries(
        first=number[0],
        start_ns=tuple(accumulate(wall[:-1], initial=0)),
        wall_ns=tuple(wall),
        number=tuple(number),
        sections=tuple(zip(history.sections, map(tuple, columns), strict=True)),
        cpu_wait_ns=tuple(waits) if len(waits) == len(wall) else (),
        gc_ns=tuple(collected) if len(collected) == len(wall) else (),
    )


def _tree(snapshot: Snapshot, contexts: Contexts, whole: Segment, number: int) -> ThreadTree:
    n = len(contexts)
    calls, self_ns = [0] * n, [0] * n
    spent = whole.spent
    for at, count, ns in zip(spent.context, spent.calls, spent.self_ns, strict=True):
        calls[at], self_ns[at] = count, ns
    root = next(i for i, key in enumerate(snapshot.keys) if key.kind == "root")
    idle = [*whole.idle_ns, *(0,) * (len(RUN_PHASES) - len(whole.idle_ns))]
    nodes = NodeTable(
        (-1, *(above + 1 for above in contexts.parent)),
        (root, *contexts.key),
        (0, *calls),
        (0,) * (n + 1),
        (sum(idle), *self_ns),
        (STEPS, *contexts.phase),
        tuple(idle),
    )
    thread = snapshot.threads[number] if number < len(snapshot.threads) else None
    name = "MainThread" if thread is None else thread.name
    return ThreadTree(0 if thread is None else thread.ident, name, False, nodes)


def _sections(keys: Sequence[Key], nodes: NodeTable) -> tuple[SectionStats, ...]:
    """Return the sections' sums; what single entries took is not kept over time."""
    n = len(nodes)
    inside = [*nodes.self_ns]
    for row in range(n - 1, 0, -1):
        inside[nodes.parent[row]] += inside[row]
    is_nested = [False] * n  # in an open entry of the same name
    open_keys: list[frozenset[int]] = [frozenset()] * n
    sums: dict[tuple[int, int], list[int]] = {}
    for row in range(1, n):
        above = open_keys[nodes.parent[row]]
        key = nodes.key[row]
        open_keys[row] = above
        if keys[key].kind == "section":
            is_nested[row], open_keys[row] = key in above, above | {key}
            one = sums.setdefault((key, nodes.phase[row]), [0, 0, 0])
            one[0] += nodes.calls[row]
            one[1] += inside[row]
            one[2] += 0 if is_nested[row] else inside[row]
    return tuple(
        SectionStats(
            key, 0, count, sum_ns, outer_ns, sum_ns // count, sum_ns // count, 0, 0, Histogram(),
            phase,
        )
        for (key, phase), (count, sum_ns, outer_ns) in sums.items()
        if count
    )  # fmt: skip
