"""The loaders' part of a report: the cost of batches, whether workers keep up, workers needed.

**Workers needed.** Workers load in parallel, so ``w`` of them deliver a batch every ``load / w``.
The loop never waits if that is at most the time of a step without waiting::

    needed = ceil(load time per batch / time between batches without the data section)

If the loop loads, both times are without the cost of recording functions.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastprof.names import readable
from fastprof.report.correct import may_be_more
from fastprof.report.figures import duration, plural, with_percent
from fastprof.report.loading_cost import unhooked_parts
from fastprof.report.phase_names import DATA
from fastprof.report.rows import StepTable
from fastprof.report.run_phases import plain_are_most
from fastprof.report.steps import sections_as_recorded
from fastprof.snapshot import LoaderStats, Snapshot
from fastprof.snapshot.loaders import WorkerStats

#: Fewer batches (the merged threshold table's minimum) are too few to judge.
MIN_SAMPLES = 20

#: The loop waits too much if it waits for this part of its batches, or its own loading takes this
#: part of a step: "bad" and "good" limits of Accelerate's profiling guide.
BLOCKED_SHARE = 0.30
DATA_SHARE = 0.10

#: Workers that had caught up at this part of the calls of ``next()`` count as mostly caught up.
CAUGHT_UP_SHARE = 0.75

#: If at least this part of a time remains without the hook, the text does not mention its cost.
_MUCH = 0.95

#: Sending a batch from a worker takes about as long as making such a short one.
SHORT_BATCH_MS = 1.0

#: Less work between two batches is no step: the loader is read at once, by ``list(loader)``.
_NO_STEP_MS = 0.02

#: Parts of a batch's time; the wait for the next batch is separate.
PHASES = ("data", "forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """Load time per batch of one worker, over ``count`` batches."""

    worker: int
    count: int
    mean_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """The workers of one loader of torch's, and its cost outside of steps.

    Of ``ready + blocked`` calls of ``next()`` (first batches left out), ``blocked`` waited, for
    ``blocked_ms`` in all; ``blocked_share`` is their part.  The others took ``ready_ms`` each, None
    if there were few: receiving a batch from a worker takes time.  ``depth`` says how often at
    least how many batches were ready, as ``(at least, times)``.

    ``load_ms`` is the mean load time per batch in one worker, over ``load_samples``: measured in
    the workers if ``measured``, else seen from the loop while it waited; without workers, the time
    of ``next()``.  ``step_ms`` is the time between two batches of this loader without all loading,
    ``needed`` the number of workers that would keep up with it; None if too little is known.  If
    workers mostly were idle, loading takes less than ``load_within_ms``.  ``advice`` is a sentence
    or empty.

    ``passes`` is the number of epochs.  ``start_ms`` (iterating that starts workers), ``resume_ms``
    (with kept workers), ``first_ms`` (the first batch) and ``shutdown_ms`` are means;
    ``outside_ms`` is the sum of all of these over the run.
    """

    workers: int
    prefetch: int | None
    batch_size: int | None
    persistent: bool
    start_method: str | None
    cpus: int | None
    ready: int
    blocked: int
    blocked_share: float | None
    blocked_ms: float
    ready_ms: float | None
    depth: tuple[tuple[int, int], ...]
    load_ms: float | None
    load_max_ms: float | None
    load_within_ms: float | None
    load_samples: int
    measured: bool
    by_worker: tuple[WorkerLoad, ...]
    step_ms: float | None
    needed: int | None
    advice: str
    passes: int
    starts: int
    start_ms: float | None
    resumes: int
    resume_ms: float | None
    first_ms: float | None
    shutdowns: int
    shutdown_ms: float | None
    outside_ms: float
    died: int
    processes: int
    profiled: int
    windows: bool


@dataclass(frozen=True, slots=True)
class LoaderRow:
    """One data loader; the ``_ms`` are means per sample of that phase.

    ``realized`` is its share of all batches of the same split, ``weight`` the configured one (any
    positive number: weights are relative), ``time_share`` its share of the time of the split's
    batches in the four phases.  ``workers`` is None if it is not a loader of torch's.
    """

    name: str
    split: str
    batches: int
    realized: float | None
    weight: float | None
    data_ms: float | None
    forward_ms: float | None
    backward_ms: float | None
    optimizer_ms: float | None
    batch_wait_ms: float | None
    workers: WorkerRow | None = None
    time_share: float | None = None


def loader_rows(snapshot: Snapshot, plain: StepTable | None = None) -> tuple[LoaderRow, ...]:
    """Return a row per loader; its times are those of the steps that the table of steps shows.

    Args:
        plain: the table of plain steps, if that is shown.
    """
    loaders = snapshot.loaders
    if plain_are_most(snapshot):
        loaders = tuple(replace(loader, phases=_without_hook(loader)) for loader in loaders)
        if plain is not None:
            loaders = _as_in_steps(snapshot.loaders, loaders, plain)
    batches: dict[str, int] = {}
    times: dict[str, int] = {}
    for loader in loaders:
        batches[loader.split] = batches.get(loader.split, 0) + loader.batches
        times[loader.split] = times.get(loader.split, 0) + _time_ns(loader)
    return tuple(
        _loader_row(snapshot, loader, batches[loader.split], times[loader.split])
        for loader in loaders
    )


def _without_hook(loader: LoaderStats) -> dict[str, tuple[int, int]]:
    """Return the sums of all phases, as if every step took as long as plain ones."""
    phases = dict(loader.phases)
    for phase, (count, sum_ns) in (loader.plain or {}).items():
        if count >= MIN_SAMPLES and phase in phases:
            every = phases[phase][0]
            phases[phase] = every, sum_ns * every // count
    return phases


def _as_in_steps(
    recorded: Sequence[LoaderStats], loaders: Sequence[LoaderStats], plain: StepTable
) -> tuple[LoaderStats, ...]:
    """Return ``loaders`` with the times of the table where sections were off in plain steps.

    There a section has the time of its row, and each training loader the part of it that it has
    where the section was recorded.
    """
    off = {row.name: row.total_ns for row in plain.rows if row.steps is None}
    sums = {
        phase: sum(loader.phases.get(phase, (0, 0))[1] for loader in recorded if _trains(loader))
        for phase in PHASES
        if phase in off
    }
    made = []
    for before, loader in zip(recorded, loaders, strict=True):
        phases, batches = dict(loader.phases), (loader.plain or {}).get("data", (0, 0))[0]
        every = phases.get("data", (0, 0))[0]
        for phase, sum_ns in sums.items():
            count, ns = before.phases.get(phase, (0, 0))
            with_hook = count - (loader.plain or {}).get(phase, (0, 0))[0]
            if _trains(loader) and 0 < batches < every and min(with_hook, ns) > 0:
                # Some batches with the hook are in no row: a whole number of sections is in each
                # batch, or of batches in each section.
                ratio = with_hook / (every - batches)
                sections = every * round(ratio) if ratio > 0.75 else every // round(1.0 / ratio)
                if sections:
                    phases[phase] = sections, round(off[phase] * ns / sum_ns * every / batches)
        made.append(replace(loader, phases=phases))
    return tuple(made)


def _trains(loader: LoaderStats) -> bool:
    return loader.split == "train"


def _time_ns(loader: LoaderStats) -> int:
    return sum(loader.phases.get(phase, (0, 0))[1] for phase in PHASES)


def _loader_row(
    snapshot: Snapshot, loader: LoaderStats, of_split: int, time_of_split: int
) -> LoaderRow:
    def mean(phase: str) -> float | None:
        return _mean_ms(loader.phases.get(phase, (0, 0)))

    return LoaderRow(
        name=loader.name,
        split=loader.split,
        batches=loader.batches,
        realized=loader.batches / of_split if of_split else None,
        weight=loader.weight,
        data_ms=mean("data"),
        forward_ms=mean("forward"),
        backward_ms=mean("backward"),
        optimizer_ms=mean("optimizer"),
        batch_wait_ms=mean("batch_wait"),
        workers=None if loader.workers is None else _worker_row(snapshot, loader, loader.workers),
        time_share=_time_ns(loader) / time_of_split if time_of_split else None,
    )


def _mean_ms(pair: tuple[int, int]) -> float | None:
    count, sum_ns = pair
    return sum_ns / count / 1e6 if count else None


def _worker_row(snapshot: Snapshot, loader: LoaderStats, w: WorkerStats) -> WorkerRow:
    asked = w.ready + w.blocked
    if w.workers:
        load = (sum(t.count for t in w.loads), sum(t.sum_ns for t in w.loads))
        longest = max((t.max_ns for t in w.loads), default=None)
    else:
        load, longest = loader.phases.get("data", (0, 0)), None
    load_ms = _mean_ms(load)
    step_ms = _step_ms(snapshot, loader, w)
    needed = None
    mostly = max(MIN_SAMPLES, CAUGHT_UP_SHARE * asked)
    plain = loader.plain is not None and plain_are_most(snapshot)
    loads, rest = (1.0, 1.0) if w.workers or plain else unhooked_parts(snapshot)
    if load_ms is not None and step_ms and min(loader.batches, load[0]) >= MIN_SAMPLES:
        needed = max(1, math.ceil(load_ms * loads / (step_ms * rest)))
    row = WorkerRow(
        workers=w.workers,
        prefetch=w.prefetch,
        batch_size=w.batch_size,
        persistent=w.persistent,
        start_method=w.start_method,
        cpus=w.cpus,
        ready=w.ready,
        blocked=w.blocked,
        blocked_share=w.blocked / asked if asked else None,
        blocked_ms=w.blocked_ns / 1e6,
        ready_ms=w.ready_ns / w.ready / 1e6 if w.ready >= MIN_SAMPLES and w.ready_ns else None,
        depth=tuple((1 << i >> 1, n) for i, n in enumerate(w.depth) if n),
        load_ms=load_ms,
        load_max_ms=None if longest is None else longest / 1e6,
        load_within_ms=_mean_ms(w.caught_up) if w.caught_up[0] >= mostly else None,
        load_samples=load[0],
        measured=w.measured or not w.workers,
        by_worker=tuple(
            WorkerLoad(t.worker, t.count, t.sum_ns / t.count / 1e6, t.max_ns / 1e6)
            for t in w.loads
            if t.count
        ),
        step_ms=step_ms,
        needed=needed,
        advice="",
        passes=w.firsts[0],
        starts=w.starts[0],
        start_ms=_mean_ms(w.starts),
        resumes=w.resumes[0],
        resume_ms=_mean_ms(w.resumes),
        first_ms=_mean_ms(w.firsts),
        shutdowns=w.shutdowns[0],
        shutdown_ms=_mean_ms(w.shutdowns),
        outside_ms=sum(ns for _, ns in (w.starts, w.resumes, w.firsts, w.shutdowns)) / 1e6,
        died=w.died,
        processes=w.processes,
        profiled=w.profiled,
        windows=bool(w.windows),
    )
    advice = worker_advice(
        called(loader.name, loader.split), row, loads, rest, least=may_be_more(snapshot)
    )
    return replace(row, advice=advice)


def _step_ms(snapshot: Snapshot, loader: LoaderStats, w: WorkerStats) -> float | None:
    """Return the time from one batch of ``loader`` to its next, without all loading."""
    steps = snapshot.steps
    measured = steps.measured
    if loader.split != "train" or measured <= 0 or not loader.batches:
        return None
    if w.between is not None:
        work_ms = _mean_ms(w.between)
        return work_ms if work_ms is not None and work_ms > _NO_STEP_MS else None
    # A file from before these were recorded: as if the loader had all steps.
    loading = sum(ns for name, ns in sections_as_recorded(snapshot).items() if name in DATA)
    if loading >= steps.sum_ns:  # nothing but loading, or an invented file
        return None
    return (steps.sum_ns - loading) / measured * steps.count / loader.batches / 1e6


def called(name: str, split: str) -> str:
    """Return a loader's name for a sentence; "Data loader" precedes a generated name.

    Loaders of different splits may have the same name.
    """
    shown = readable(name, 60)
    shown = f"Data loader {shown}" if re.fullmatch(r"loader\d+", name) else shown
    return shown if split == "train" else f"{shown} ({readable(split, 30)})"


def worker_advice(
    loader: str, row: WorkerRow, loads: float, rest: float, *, least: bool = False
) -> str:
    """Return the arithmetic in a sentence if the loop waits, else nothing.

    Args:
        loads: the part of the time in loading that remains without the function hook.
        rest: the same of the rest of a step.
        least: more of both may remain.
    """
    if row.needed is None or row.load_ms is None or not row.step_ms:
        return ""
    load = f"{duration(row.load_ms)} per batch"
    step = f"a {duration(row.step_ms)} step"
    if min(loads, rest) < _MUCH:
        step += (
            f" ({'at least ' if least else ''}{duration(row.load_ms * loads)} and "
            f"{duration(row.step_ms * rest)} "
            "without what recording functions costs)"
        )
    if not row.workers:
        # As the sentence states them: the hook's cost makes short batches look long.
        loading, rest_ms = row.load_ms * loads, row.step_ms * rest
        if loading < max(DATA_SHARE * (loading + rest_ms), SHORT_BATCH_MS):
            return ""
        return (
            f"{loader} has no workers, so the loop loads its batches, {load} against {step}: "
            f"{_workers(row.needed)} could load them meanwhile"
            f"{_cpus(row) or ' if a CPU is free'}."
        )
    if row.blocked_share is None or row.blocked_share < BLOCKED_SHARE:
        return ""
    have = f"{loader}: {_workers(row.workers)} x {load} against {step}"
    if row.needed > row.workers:
        return f"{have}: you need {row.needed}{_cpus(row)}."
    longest = "" if row.load_max_ms is None else f" (up to {duration(row.load_max_ms)})"
    return (
        f"{have} would do, but the loop waited for {with_percent(row.blocked_share)} of its "
        f"batches: load times vary{longest}, which a higher prefetch_factor evens out."
    )


def _workers(count: int) -> str:
    return plural(count, "worker")


def any_workers(rows: Sequence[LoaderRow]) -> bool:
    """Return whether a loader has worker processes."""
    return any(row.workers is not None and row.workers.workers > 0 for row in rows)


def most_workers(cpus: float, *, waits: bool) -> int:
    """Return how many workers have a free CPU while the training process runs.

    Args:
        waits: loading waits for files or the network, which needs no CPU.
    """
    return max(1, int(cpus)) if waits else max(0, int(cpus) - 1)


def _cpus(row: WorkerRow) -> str:
    if row.cpus is None or row.needed is None or row.needed < row.cpus:
        return ""
    return (
        f" (this process may use {plural(row.cpus, 'CPU')}: if loading "
        "mostly computes, make it cheaper instead)"
    )


def loader_notes(snapshot: Snapshot, rows: Sequence[LoaderRow]) -> list[str]:
    """Return the notes on the tables, the advice first."""
    notes = [row.workers.advice for row in rows if row.workers and row.workers.advice]
    for row in rows:
        w = row.workers
        if w is None:
            continue
        name = readable(row.name, 60)
        if w.died:
            notes.append(f"Worker processes of {name} that died: {w.died}.")
        if w.windows:
            notes.append(f"Functions of the workers of {name} were recorded in single batches.")
        elif w.profiled and w.profiled < w.processes:
            notes.append(
                f"Functions were recorded in {w.profiled} of "
                f"{plural(w.processes, 'worker process')} of {name}; "
                "the others left nothing behind."
            )
    if snapshot.worker_threads:
        notes.append(
            "Functions of worker processes have separate tables: workers run in parallel with "
            "this process, and none of its figures includes their time."
        )
    return notes
