"""Extracts the row of one rank from its saved run, small enough to keep a thousand."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from fastprof.names import readable
from fastprof.ranks.health import rank_health
from fastprof.ranks.model import FunctionExcess, RankRow
from fastprof.report.build import build_report
from fastprof.report.framework import framework_of
from fastprof.report.functions import split_by_section
from fastprof.report.model import Report
from fastprof.report.model_gpu import GpuTimelineRow
from fastprof.report.origin import shown_name
from fastprof.report.phase_names import BACKWARD, is_communication
from fastprof.report.program import kind_of, led_to, library_name
from fastprof.report.rows import OWN_COST, UNACCOUNTED, FunctionRow, StepTable
from fastprof.report.run_phases import chosen_phase, steps_in
from fastprof.report.steps import section_series, sections_as_recorded
from fastprof.report.threads import training_thread
from fastprof.snapshot import Key, NodeTable, Snapshot, ThreadTree
from fastprof.snapshot.kinds import int_or_none, show
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS

#: Most ranks of a job; reports list missing ranks one by one.
MAX_RANKS = 1_000_000
#: Most steps, sections and functions of the program kept per rank.
MAX_STEPS = 4096
_SECTIONS = 12
_FUNCTIONS = 200
_CALLED = 8
#: Phases of the run in which a rank may let the others wait, and the smallest share of its steps'
#: time from which the work in one of them counts.
BETWEEN = ("validation", "checkpoint", "outside")
_LEAST_BETWEEN = 0.02
#: Most training loaders whose workers and batch sizes are compared.
_LOADERS = 20

#: A function of the program: its shown name, file and line.
Place = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class RankSteps:
    """Measured steps of a rank: their 0-based numbers, and ms per step as columns.

    ``sections`` are the top-level ones.  ``communication`` and ``autograd`` are None if
    functions were not recorded, ``cpu``, ``gc``, ``cpu_wait`` and ``gpu_wait`` (waiting for other
    ranks that the GPU shows) if they are unknown.  If a step here is a block of steps, ``measured``
    is the share of those that were measured.
    """

    numbers: array[int]
    wall: array[float]
    sections: Mapping[str, array[float]]
    communication: array[float] | None
    autograd: array[float] | None
    cpu: array[float] | None
    gc: array[float] | None
    cpu_wait: array[float] | None
    gpu_wait: array[float] | None = None
    measured: array[float] | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """The time of a function of the program per measured step in ms, without waiting.

    ``called`` is the time of the library functions that it led to, by name.
    """

    ms: float
    called: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Between:
    """A phase of the run between steps: wall time in ms, and the program's main function."""

    ms: float
    function: FunctionExcess | None = None


@dataclass(frozen=True, slots=True)
class RankRun:
    """One rank: its row, its steps, and its functions.

    ``waiting`` is communication by top-level section in ms per step, ``overhead`` fastprof's cost,
    which ``steps`` contains and the sections of ``row`` leave out.  ``table`` has all
    functions.  ``between`` are the phases of the run between steps.  ``cuda``: the program uses a
    GPU, whose work is not known here.  ``job``, ``began_ns`` and ``ended_ns`` (since 1970)
    distinguish jobs.
    """

    row: RankRow
    steps: RankSteps | None = None
    waiting: Mapping[str, float] = field(default_factory=dict)
    overhead: Mapping[str, float] = field(default_factory=dict)
    program: Mapping[Place, Function] = field(default_factory=dict)
    table: tuple[FunctionRow, ...] = ()
    between: Mapping[str, Between] = field(default_factory=dict)
    cuda: bool = False
    job: str | None = None
    began_ns: int | None = None
    ended_ns: int | None = None


def rank_run(snapshot: Snapshot, path: str, *, most_steps: int = MAX_STEPS) -> RankRun:
    """Return the rank of one recording; ``path`` is the file it was read from.

    Raises:
        ValueError: it has no rank number, or one above :data:`MAX_RANKS`.
    """
    small = only_steps(snapshot)
    report = build_report(small)
    row = rank_row(report, path)
    meta = snapshot.meta
    ended, job = int_or_none(meta.get("recorded_until_ns")), meta.get("job")
    return RankRun(
        row=row,
        steps=_steps(_with_shown_steps(small, report), most_steps),
        waiting=_waiting(small, report),
        overhead=_overhead(small, report),
        program=_program(small),
        table=tuple(replace(f, callers=(), callees=()) for f in report.functions),
        between=_between(snapshot),
        job=job if isinstance(job, str) else None,
        began_ns=None if ended is None else ended - snapshot.duration_ns,
        ended_ns=ended,
    )


def _shown(report: Report) -> StepTable:
    """Return the plain steps if their sections are known, else the steps with functions.

    All steps must be comparable: in steps with functions waits for other ranks are known, too, but
    a rank may be late in the others.
    """
    plain = report.plain
    return plain if plain is not None and plain.series.names else report.steps


def _with_shown_steps(snapshot: Snapshot, report: Report) -> Snapshot:
    plain = snapshot.plain_steps
    if plain is None or _shown(report) is not report.plain:
        return snapshot
    return replace(snapshot, steps=plain)


def _waiting(snapshot: Snapshot, report: Report) -> dict[str, float]:
    """Return the ms per step that calls waited for other ranks, by section.

    Only steps with functions know that.  Of plain ones it is the same part of each section.
    """
    found = split_by_section(snapshot, "communication")
    shown = _with_shown_steps(snapshot, report)
    if shown is snapshot:
        return found
    with_hook, plain = _means(snapshot), _means(shown)
    return {
        name: ms * plain.get(name, 0.0) / with_hook[name]
        for name, ms in found.items()
        if with_hook.get(name)
    }


def _means(snapshot: Snapshot) -> dict[str, float]:
    """Return the ns per step in each outermost section, and in none, as recorded."""
    steps, sums = snapshot.steps, sections_as_recorded(snapshot)
    rest = {UNACCOUNTED: steps.sum_ns - sum(sums.values())}
    return {name: ns / max(1, steps.measured) for name, ns in (sums | rest).items()}


def _overhead(snapshot: Snapshot, report: Report) -> dict[str, float]:
    if _shown(report) is report.plain:
        return {}
    measured: dict[str, int] = {}
    for row in snapshot.steps.rows:
        name = snapshot.keys[row.key].name
        measured[name] = measured.get(name, 0) + row.sum_ns
    return {
        row.name: (measured[row.name] - row.total_ns) / report.steps.measured / 1e6
        for row in report.steps.rows
        if row.name in measured
    }


def only_steps(snapshot: Snapshot) -> Snapshot:
    """Return the recording without the contexts of other phases of the run.

    A default run has ten times as many contexts of imports as of steps.  If a GPU was
    observed, all contexts are kept, because its work points to them.
    """
    if chosen_phase(snapshot, None) != RUN_PHASES[STEPS] or (
        snapshot.gpu is not None and snapshot.gpu.devices
    ):
        return snapshot
    threads, numbers = [], []
    for tree in snapshot.threads:
        small, number = _compact(tree, STEPS)
        threads.append(small)
        numbers.append(number)
    places = tuple(
        replace(place, node=numbers[place.thread][place.node])
        for place in snapshot.steps.split_places
        if place.node in numbers[place.thread]
    )
    return replace(
        snapshot,
        threads=tuple(threads),
        steps=replace(snapshot.steps, split_places=places),
        outliers=None if snapshot.outliers is None else replace(snapshot.outliers, kept=()),
        worker_threads=(),
        operators=None,
        trace=None,
    )


def _compact(tree: ThreadTree, of: int) -> tuple[ThreadTree, dict[int, int]]:
    """Return the nodes of the phase numbered ``of``, and the new number of each."""
    nodes = tree.nodes
    if not nodes.phase:
        return tree, {i: i for i in range(len(nodes))}
    kept = [i for i, phase in enumerate(nodes.phase) if phase == of or not i]
    number = {node: i for i, node in enumerate(kept)}

    def rows(column: Sequence[int]) -> tuple[int, ...]:
        return tuple([column[i] for i in kept])

    table = NodeTable(
        parent=(-1, *(number[nodes.parent[i]] for i in kept[1:])),
        key=rows(nodes.key),
        calls=rows(nodes.calls),
        resumes=rows(nodes.resumes),
        self_ns=rows(nodes.self_ns),
        phase=rows(nodes.phase),
        idle_ns=nodes.idle_ns,
    )
    return replace(tree, nodes=table), number


def rank_row(report: Report, path: str) -> RankRow:
    """Return the row of one rank's report; ``path`` is the file it was read from.

    Raises:
        ValueError: it has no rank number, or one above :data:`MAX_RANKS`.
    """
    meta, steps = report.meta, _shown(report)
    rank, world = int_or_none(meta.get("rank")), int_or_none(meta.get("world_size"))
    if rank is None:
        raise ValueError(
            "does not say of which rank it is; the .fprof files of a distributed job do"
        )
    if max(rank, world or 0) > MAX_RANKS:
        raise ValueError(
            f"is of rank {show(rank)} of {show(world)}, expected at most {MAX_RANKS} ranks"
        )
    host, memory = meta.get("hostname"), report.memory
    use = None if report.gpu is None else report.gpu.use
    spans = _spans(report)
    n = report.steps.measured  # what the devices' figures cover
    counted = steps_in(report.phase, steps.count, n)
    return RankRow(
        rank=rank,
        world_size=world,
        host=host if isinstance(host, str) else None,
        path=path,
        steps=steps.measured,
        skipped=steps.skipped,
        step_ms=steps.mean_ms,
        p95_ms=steps.p95_ms,
        cv=steps.cv,
        sections=tuple(
            (r.name, r.mean_ms) for r in steps.rows if r.name not in (UNACCOUNTED, OWN_COST)
        ),
        waits=tuple(_waits(report).items()),
        gpu_utilization=None if report.gpu is None else report.gpu.utilization,
        gpu_compute_ms=sum(s.compute_ns for s in spans) / n / 1e6 if spans and n else None,
        gpu_communication_ms=sum(s.communication_ns for s in spans) / n / 1e6
        if spans and n
        else None,
        gpu_waits=use.syncs / counted if use is not None and counted else None,
        memory_bytes=None if memory is None else memory.peak_reserved,
        memory_total_bytes=None if memory is None else memory.total_bytes,
        setup=_setup(report),
        framework=framework_of(report),
        **rank_health(() if report.gpu is None else report.gpu.devices),
    )


def _spans(report: Report) -> list[GpuTimelineRow]:
    """Return the work of each device in the measured steps."""
    return [d.steps for d in report.gpu.devices if d.steps] if report.gpu is not None else []


def _waits(report: Report) -> dict[str, float]:
    """Return the time per step waiting for other ranks, by signal."""
    steps, found = _shown(report), {}
    n = report.steps.measured  # the devices' figures are of these
    if not n or steps.mean_ms is None:
        return {}
    spans = _spans(report)
    if any(span.communication_ns for span in spans):
        # Devices of one process work in parallel: the one that communicates longest counts.
        found["gpu"] = max(s.communication_ns - s.overlap_ns for s in spans) / n / 1e6
    for row in steps.split:
        if row.name == "communication" and row.total_ns:
            found["split"] = row.mean_ms
    communication = [r.mean_ms for r in steps.rows if is_communication(r.name)]
    if communication:
        found["sections"] = sum(communication)
    backward = [r.mean_ms for r in steps.rows if r.name in BACKWARD]
    if backward:
        found["backward"] = sum(backward)
    return found


def _setup(report: Report) -> tuple[tuple[str, str], ...]:
    meta = report.meta
    found = {
        "functions recorded": meta.get("functions"),
        "sections synchronized": meta.get("sync"),
        "GPU observed": None if report.gpu is None else report.gpu.status == "on",
        "warm-up steps": report.steps.skipped,
        "Python": meta.get("python"),
        "hook backend": meta.get("backend"),
    }
    trained = (row for row in report.loaders if row.split == "train")
    for row in islice(trained, _LOADERS):
        if row.workers is not None:
            name = readable(row.name, 40)
            found[f"workers of loader {name}"] = row.workers.workers
            found[f"batch size of loader {name}"] = row.workers.batch_size
    words = {True: "yes", False: "no", None: "n/a"}
    return tuple(
        (what, words[v] if isinstance(v, bool) or v is None else readable(str(v), 60))
        for what, v in found.items()
    )


# ---- steps one by one


def _steps(snapshot: Snapshot, most: int) -> RankSteps | None:
    series = snapshot.steps.series
    n = len(series)
    if not n:
        return None
    begin = max(0, n - most)

    def ms(column: Sequence[int]) -> array[float]:
        return array("f", [ns / 1e6 for ns in column[begin:]])

    def known(column: Sequence[int]) -> array[float] | None:
        return ms(column) if column else None

    by_name = section_series(snapshot)
    largest = sorted(by_name, key=lambda name: -sum(by_name[name]))[:_SECTIONS]
    numbers = series.numbers()
    return RankSteps(
        numbers=array("q", numbers[begin:]),
        wall=ms(series.wall_ns),
        sections={name: ms(by_name[name]) for name in largest},
        communication=known(series.communication_ns),
        autograd=known(series.autograd_ns),
        cpu=known(series.cpu_ns),
        gc=known(series.gc_ns),
        cpu_wait=known(series.cpu_wait_ns),
    )


# ---- functions of the program


def _program(snapshot: Snapshot) -> dict[Place, Function]:
    """Return the program's functions in the steps, with the library functions they led to.

    Waiting for other ranks counts for no function.
    """
    n, thread = snapshot.steps.measured, training_thread(snapshot)
    if not n or thread < 0:
        return {}
    nodes = snapshot.threads[thread].nodes
    waits = {
        place.node
        for place in snapshot.steps.split_places
        if place.thread == thread and place.kind == "communication"
    }
    if nodes.phase:
        waits |= {i for i, phase in enumerate(nodes.phase) if phase != STEPS}
    return program_of(nodes.parent, nodes.key, nodes.self_ns, snapshot.keys, waits, n)


def program_of(
    parent: Sequence[int],
    node_key: Sequence[int],
    self_ns: Sequence[int],
    keys: Sequence[Key],
    left_out: Collection[int],
    steps: int,
) -> dict[Place, Function]:
    """Return the program's functions, with the library functions they led to, in ms per step.

    Args:
        parent, node_key, self_ns: columns of the tree; parents come first.
        left_out: nodes whose self time counts for no function.
    """
    # Most keys have no node in the steps.
    used = set(node_key)
    waits = {key for key in used if keys[key].qualname.endswith("_EngineBase.run_backward")}
    kinds = {key: "inner" if key in waits else kind_of(keys[key]) for key in used}
    user = [-1] * len(parent)
    sums: dict[tuple[int, int], int] = {}
    for i, library in islice(enumerate(led_to(parent, node_key, keys, kinds)), 1, None):
        key = node_key[i]
        user[i] = key if kinds[key] == "user" else user[parent[i]]
        if key not in waits and user[i] >= 0 and i not in left_out:
            place = (user[i], node_key[library] if library else -1)
            sums[place] = sums.get(place, 0) + self_ns[i]
    found: dict[Place, dict[str, float]] = {}
    for (key, library), ns in sums.items():
        of, name = keys[key], "" if library < 0 else library_name(keys[library])
        calls = found.setdefault((shown_name(of), of.file, of.line), {})
        calls[name] = calls.get(name, 0.0) + ns / steps / 1e6
    total = {place: sum(calls.values()) for place, calls in found.items()}
    largest = sorted(found, key=lambda place: -total[place])[:_FUNCTIONS]
    return {place: Function(total[place], _largest(found[place])) for place in largest}


def _between(snapshot: Snapshot) -> dict[str, Between]:
    steps_ns = snapshot.steps.sum_ns
    return {
        phase.name: Between(
            phase.wall_ns / 1e6,
            _most_in(snapshot, phase.name) if phase.wall_ns >= _LEAST_BETWEEN * steps_ns else None,
        )
        for phase in snapshot.phases
        if phase.name in BETWEEN
    }


def _most_in(snapshot: Snapshot, phase: str) -> FunctionExcess | None:
    """Return the function of the program that took at least half of a phase."""
    thread = training_thread(snapshot)
    if thread < 0:
        return None
    nodes = _compact(snapshot.threads[thread], RUN_PHASES.index(phase))[0].nodes
    found = program_of(nodes.parent, nodes.key, nodes.self_ns, snapshot.keys, (), 1)
    total = sum(nodes.self_ns) / 1e6
    for place, function in found.items():  # the first one took the longest
        if function.ms < total / 2:
            break
        name, ms = next(iter(function.called.items()))
        called = name if name and ms >= function.ms / 2 else None
        return FunctionExcess(*place, function.ms, 0.0, called)
    return None


def _largest(calls: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(calls.items(), key=lambda item: -item[1])[:_CALLED])
