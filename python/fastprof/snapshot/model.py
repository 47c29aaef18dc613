"""What was recorded: raw, frozen, serialisable; one :class:`Snapshot` per process.

This is the seam between capture and report.  Capture produces it and knows nothing of
reports; reports consume it and need neither the extension nor the live process.  All
times are integer nanoseconds of one monotonic clock.  Nothing here holds a live object.

``Snapshot.from_dict`` is the validator for untrusted input: whatever it returns is
internally consistent (indices in range, columns of equal length, parents before
children, counters not negative); whatever is not raises :class:`SnapshotError`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fastprof.errors import SnapshotError
from fastprof.snapshot.fields import (
    as_column,
    as_dict,
    as_float,
    as_int,
    as_ints,
    as_list,
    as_str,
    fail,
    show,
)
from fastprof.snapshot.gpu import GpuSnapshot, only_phases, read_gpu
from fastprof.snapshot.loaders import WorkerStats, read_workers
from fastprof.snapshot.memory import MemorySnapshot, read_memory
from fastprof.snapshot.operators import OperatorSnapshot, read_operators
from fastprof.snapshot.outliers import OutlierSnapshot, read_outliers
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS, PhaseTime, phase_numbers, read_phases
from fastprof.snapshot.steps import (
    PlainSteps,
    SplitPlace,
    StepSeries,
    read_plain_steps,
    read_split,
)
from fastprof.snapshot.trace import TraceSnapshot, read_trace

SCHEMA = "fastprof/1"

#: Kinds of tree keys.  ``root`` is the thread itself, ``truncated`` stands for contexts
#: beyond the depth or node cap, ``type`` is a constructor or other callable object that
#: only the monitoring backend can see.
KINDS = ("root", "truncated", "python", "c", "type", "section")

#: How a function was called: by a call instruction that has a short way into it without the
#: hook; by none (an operator, an attribute, C code), or, of a type, by none that enters its
#: ``__init__``; with keywords, or taking any; as ``f(*args, **kwargs)``.
CALL_FORMS = ("short", "implicit", "general", "unpacked")


@dataclass(frozen=True, slots=True)
class Key:
    """What a tree node stands for.

    ``name`` is cProfile's label (``co_name`` or ``<built-in method builtins.len>``);
    ``qualname`` is the qualified name.  C functions have file ``"~"`` and line 0,
    sections have file ``""`` and line 0.  ``form``, one of ``CALL_FORMS``, is how the first
    call was made; only what the hook costs depends on it.
    """

    kind: str
    file: str
    line: int
    name: str
    qualname: str
    form: str = field(default="short", compare=False)


@dataclass(frozen=True, slots=True)
class NodeTable:
    """A calling-context tree as columns; row 0 is the root, parents precede children.

    ``parent[0]`` is -1.  ``calls`` counts entries, ``resumes`` counts continuations of
    generators and coroutines (cProfile's ncalls = calls + resumes).  ``self_ns`` is
    exclusive wall time, raw (hook cost included): the sum over a subtree is that
    subtree's inclusive time.
    """

    parent: tuple[int, ...]
    key: tuple[int, ...]
    calls: tuple[int, ...]
    resumes: tuple[int, ...]
    self_ns: tuple[int, ...]
    #: Per node its phase of the run, an index of ``RUN_PHASES``; empty: all are 0.  Nodes
    #: of different phases may have the same parent and key, if the parent is the root.
    phase: tuple[int, ...] = ()
    #: Time per phase in which nothing was open; their sum is ``self_ns[0]``.  Empty: all
    #: of it is of phase 0.
    idle_ns: tuple[int, ...] = ()
    #: What others worked out from it and ask for again; no part of it.
    known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.parent)

    def only(self, phases: Collection[int]) -> NodeTable:
        """Return the same rows, in which what is of other phases has no calls and no time."""
        phase = self.phase or (STEPS,) * len(self)
        idle = self.idle_ns or (self.self_ns[0],)
        kept = [p in phases for p in phase]
        kept[0] = True
        calls, resumes, self_ns = (
            [v if keep else 0 for v, keep in zip(column, kept, strict=True)]
            for column in (self.calls, self.resumes, self.self_ns)
        )
        idle_ns = tuple(ns if p in phases else 0 for p, ns in enumerate(idle))
        self_ns[0] = sum(idle_ns)
        return NodeTable(
            self.parent, self.key, tuple(calls), tuple(resumes), tuple(self_ns), phase, idle_ns
        )


@dataclass(frozen=True, slots=True)
class ThreadTree:
    """One thread's tree.  ``ident`` 0 is the merged tree of ended threads."""

    ident: int
    name: str
    ended: bool
    nodes: NodeTable


@dataclass(frozen=True, slots=True)
class Histogram:
    """Log-linear histogram of durations: rows ``(low_ns, high_ns, count)``, ascending.

    Bucket widths are below 1/64 of their lower bound, so a midpoint is within 0.8 %.
    """

    rows: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SectionStats:
    """Every use of one section name in one thread and one phase of the run.

    ``sum_ns`` adds every entry's duration; ``outer_ns`` only entries that were not
    inside another open entry of the same name (so recursion is not counted twice).
    ``errors`` counts entries left by an exception, ``open`` entries not closed yet.
    """

    key: int
    thread: int
    count: int
    sum_ns: int
    outer_ns: int
    min_ns: int
    max_ns: int
    errors: int
    open: int
    hist: Histogram
    #: Of the phase of the run in which the entries began: an index of ``RUN_PHASES``.
    phase: int = STEPS


@dataclass(frozen=True, slots=True)
class StepRow:
    """Time of one top-level section inside steps: ``steps`` in which it ran, their sum."""

    key: int
    steps: int
    sum_ns: int


@dataclass(frozen=True, slots=True)
class Steps:
    """Step boundaries of the training thread.

    ``count`` is all steps, of which the first ``skipped`` are left out of every other
    field (warm-up), as are ``apart`` later ones, most of which were made without the function
    hook: ``unprofiled``.  ``sum_ns`` is their wall time, ``sum_sq`` the sum of squares in
    seconds squared, ``recent_ns`` the last durations (bounded).  ``rows`` are the
    top-level sections; what they do not cover is unaccounted.
    """

    count: int = 0
    skipped: int = 0
    sum_ns: int = 0
    sum_sq: float = 0.0
    min_ns: int = 0
    max_ns: int = 0
    recent_ns: tuple[int, ...] = ()
    hist: Histogram = Histogram()
    rows: tuple[StepRow, ...] = ()
    #: The last steps one by one.
    series: StepSeries = field(default_factory=StepSeries)
    #: (kind, ns) over all measured steps; they add up to ``sum_ns``.  See
    #: :data:`~fastprof.snapshot.steps.SPLIT_KINDS`.  Empty: not known.
    split: tuple[tuple[str, int], ...] = ()
    #: Which kinds have no row, and why: a sentence each.
    split_missing: tuple[str, ...] = ()
    split_places: tuple[SplitPlace, ...] = ()
    #: Garbage collections in the measured steps per generation; empty: not known.
    gc_runs: tuple[int, ...] = ()
    apart: int = 0
    unprofiled: tuple[PlainSteps, ...] = ()

    @property
    def measured(self) -> int:
        """Number of steps that the times are of."""
        return max(0, self.count - self.skipped - self.apart)


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """One data loader over the whole run: batches, and per phase (count, sum_ns).

    ``phases`` maps ``data``, ``forward``, ``backward``, ``optimizer`` and ``batch_wait``.
    """

    name: str
    split: str
    batches: int
    phases: Mapping[str, tuple[int, int]]
    weight: float | None = None
    #: Of loaders of torch's only.
    workers: WorkerStats | None = None


@dataclass(frozen=True, slots=True)
class EventCost:
    """Cost of one hooked event pair in ns: inside the callee's interval, and outside it."""

    inside_ns: float
    outside_ns: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The hook's own cost on this machine and interpreter, per event kind."""

    python: EventCost
    resume: EventCost
    c: EventCost
    #: A method of a builtin type (``<method 'append' of 'list' objects>``): binding it
    #: costs extra under some hooks.
    method: EventCost
    #: A Python function that no call instruction calls, but C code, an operator or an
    #: attribute: sys.monitoring announces it once, other calls twice.
    implicit: EventCost
    #: A type that is called, or another callable object.
    constructor: EventCost
    #: An ``__init__`` written in Python that a constructor calls.  Without the hook the
    #: interpreter has a shorter way for the two.
    init: EventCost
    #: A Python function called with keywords, or one that takes any: the interpreter has no
    #: shorter way into it that the hook could take.
    general: EventCost
    #: A Python function called as ``f(*args, **kwargs)``.
    unpacked: EventCost
    #: A C function called with keywords, or one that takes a tuple of arguments.
    c_general: EventCost
    #: A generator that C code resumes (``sum``, ``list``), not a loop.
    fed: EventCost
    #: Calling a generator function or a coroutine function, all of it outside: its code
    #: begins later, as a resume does.
    made: EventCost
    #: ``str(x)``, for which some versions have a way that no other type has.
    text: EventCost
    #: How many times longer bytecode takes while the hook is on, calls left out.
    slowdown: float = 1.0

    def costs(self) -> dict[str, EventCost]:
        """Return the costs by kind."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "slowdown"}


@dataclass(frozen=True, slots=True)
class Muted:
    """A function whose events were switched off to stay within the overhead budget."""

    key: int
    calls_before: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one process recorded.

    ``meta`` holds strings and numbers only (python, platform, pid, rank, backend, clock,
    started_unix_ns, ...).  ``duration_ns`` is recorded wall time.  ``counters`` are the
    faults that were survived (``unbalanced``, ``dropped``, ``wrong_thread`` ...): nonzero
    ones belong in every report.  ``notes`` are sentences for the reader.  ``gpu``,
    ``memory`` and ``operators`` are None where that layer was not asked for.
    """

    meta: Mapping[str, str | int | float | bool | None]
    duration_ns: int
    keys: tuple[Key, ...] = ()
    threads: tuple[ThreadTree, ...] = ()
    sections: tuple[SectionStats, ...] = ()
    steps: Steps = Steps()
    loaders: tuple[LoaderStats, ...] = ()
    calibration: Calibration | None = None
    muted: tuple[Muted, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    schema: str = SCHEMA
    gpu: GpuSnapshot | None = None
    memory: MemorySnapshot | None = None
    operators: OperatorSnapshot | None = None
    #: The slowest steps in detail; None: they were not kept.
    outliers: OutlierSnapshot | None = None
    #: One tree per loader: the functions in its worker processes, all of them together.
    #: It is no part of this process's time.
    worker_threads: tuple[ThreadTree, ...] = ()
    #: None: no trace was asked for.
    trace: TraceSnapshot | None = None
    #: How long each phase of the run took; empty: the recording knows no phases.
    phases: tuple[PhaseTime, ...] = ()
    #: What others worked out from it and ask for again; no part of it.
    known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def phase_ns(self, *names: str) -> int:
        """Return the recorded wall time of phases of the run in ns.

        Raises:
            ValueError: a name that is none of ``RUN_PHASES``.
        """
        wanted = {RUN_PHASES[number] for number in phase_numbers(names)}
        if not self.phases:
            return self.duration_ns if RUN_PHASES[STEPS] in wanted else 0
        return sum(phase.wall_ns for phase in self.phases if phase.name in wanted)

    def only(self, *names: str) -> Snapshot:
        """Return what happened in some phases of the run.

        Trees keep their rows, so that indices of nodes stay what they are; rows of other
        phases have no calls and no time.  Sections, GPU work and ``duration_ns`` are those
        of the phases.  Steps, loaders, operators, memory and the trace are as before.

        Raises:
            ValueError: a name that is none of ``RUN_PHASES``.
        """
        numbers = phase_numbers(names)
        threads = tuple(replace(t, nodes=t.nodes.only(numbers)) for t in self.threads)
        gpu = self.gpu
        if gpu is not None:
            gpu = only_phases(gpu, [t.nodes.phase for t in threads], numbers)
        return replace(
            self,
            duration_ns=self.phase_ns(*names),
            threads=threads,
            sections=tuple(s for s in self.sections if s.phase in numbers),
            gpu=gpu,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers: what ``json.dumps`` accepts."""
        return {
            "schema": self.schema,
            "meta": dict(self.meta),
            "duration_ns": self.duration_ns,
            "keys": [[k.kind, k.file, k.line, k.name, k.qualname] for k in self.keys],
            "forms": [[i, k.form] for i, k in enumerate(self.keys) if k.form != "short"],
            "threads": [_tree_dict(t) for t in self.threads],
            "sections": [
                {
                    "key": s.key,
                    "thread": s.thread,
                    "count": s.count,
                    "sum_ns": s.sum_ns,
                    "outer_ns": s.outer_ns,
                    "min_ns": s.min_ns,
                    "max_ns": s.max_ns,
                    "errors": s.errors,
                    "open": s.open,
                    "hist": [list(r) for r in s.hist.rows],
                    "phase": s.phase,
                }
                for s in self.sections
            ],
            "steps": {
                "count": self.steps.count,
                "skipped": self.steps.skipped,
                "sum_ns": self.steps.sum_ns,
                "sum_sq": self.steps.sum_sq,
                "min_ns": self.steps.min_ns,
                "max_ns": self.steps.max_ns,
                "recent_ns": list(self.steps.recent_ns),
                "hist": [list(r) for r in self.steps.hist.rows],
                "rows": [[r.key, r.steps, r.sum_ns] for r in self.steps.rows],
                "series": self.steps.series.to_dict(),
                "apart": self.steps.apart,
                "unprofiled": [plain.to_list() for plain in self.steps.unprofiled],
                "split": [list(row) for row in self.steps.split],
                "split_missing": list(self.steps.split_missing),
                "split_places": [[p.kind, p.thread, p.node, p.ns] for p in self.steps.split_places],
                "gc_runs": list(self.steps.gc_runs),
            },
            "loaders": [
                {
                    "name": ld.name,
                    "split": ld.split,
                    "batches": ld.batches,
                    "weight": ld.weight,
                    "workers": None if ld.workers is None else ld.workers.to_dict(),
                    "phases": {k: list(v) for k, v in ld.phases.items()},
                }
                for ld in self.loaders
            ],
            "calibration": None
            if self.calibration is None
            else {
                **{
                    kind: [cost.inside_ns, cost.outside_ns]
                    for kind, cost in self.calibration.costs().items()
                },
                "slowdown": self.calibration.slowdown,
            },
            "muted": [[m.key, m.calls_before] for m in self.muted],
            "counters": dict(self.counters),
            "notes": list(self.notes),
            "gpu": None if self.gpu is None else self.gpu.to_dict(),
            "memory": None if self.memory is None else self.memory.to_dict(),
            "operators": None if self.operators is None else self.operators.to_dict(),
            "outliers": None if self.outliers is None else self.outliers.to_dict(),
            "worker_threads": [_tree_dict(t) for t in self.worker_threads],
            "trace": None if self.trace is None else self.trace.to_dict(),
            "phases": [[RUN_PHASES.index(p.name), p.wall_ns, p.entries] for p in self.phases],
        }

    @staticmethod
    def from_dict(data: object) -> Snapshot:
        """Validate ``data`` (as from ``json.loads``) and build the value.

        Raises:
            SnapshotError: anything missing, of the wrong type, out of range or
                inconsistent; the message names the field.
        """
        return _Reader(data).snapshot()


def _tree_dict(tree: ThreadTree) -> dict[str, Any]:
    return {
        "ident": tree.ident,
        "name": tree.name,
        "ended": tree.ended,
        "parent": list(tree.nodes.parent),
        "key": list(tree.nodes.key),
        "calls": list(tree.nodes.calls),
        "resumes": list(tree.nodes.resumes),
        "self_ns": list(tree.nodes.self_ns),
        "phase": list(tree.nodes.phase),
        "idle_ns": list(tree.nodes.idle_ns),
    }


#: No hooked event costs a second; a cost beyond that would make every time 0.
_MAX_COST_NS = 1e9


class _Reader:
    """Checks every field on the way in, so that reports need not check any."""

    def __init__(self, data: object) -> None:
        self._data = data

    def snapshot(self) -> Snapshot:
        top = as_dict(self._data, "file")
        schema = top.get("schema")
        if schema != SCHEMA:
            raise SnapshotError(f"schema is {show(schema)}, this fastprof reads {SCHEMA!r}")
        listed = as_list(top.get("keys"), "keys")
        forms = read_forms(top, len(listed))
        keys = tuple(_key(k, i, forms.get(i, "short")) for i, k in enumerate(listed))
        threads = tuple(
            _thread(t, f"threads[{i}]", keys)
            for i, t in enumerate(as_list(top.get("threads"), "threads"))
        )
        n_keys = len(keys)
        sizes = [len(t.nodes) for t in threads]
        steps = _steps(top.get("steps"), n_keys, sizes)
        # Runs saved before there were these layers lack them.
        gpu = read_gpu(top.get("gpu"), n_keys, sizes)
        return Snapshot(
            meta=_meta(top.get("meta")),
            duration_ns=as_int(top.get("duration_ns"), "duration_ns"),
            keys=keys,
            threads=threads,
            sections=tuple(
                _section(s, i, n_keys, len(threads))
                for i, s in enumerate(as_list(top.get("sections"), "sections"))
            ),
            steps=steps,
            loaders=tuple(
                _loader(v, i) for i, v in enumerate(as_list(top.get("loaders"), "loaders"))
            ),
            calibration=_calibration(top.get("calibration")),
            muted=tuple(
                Muted(*as_ints(m, f"muted[{i}]", 2, first_below=n_keys))
                for i, m in enumerate(as_list(top.get("muted"), "muted"))
            ),
            counters={
                as_str(k, "counters key"): as_int(v, f"counters[{show(k)}]")
                for k, v in as_dict(top.get("counters"), "counters").items()
            },
            notes=tuple(as_str(n, "notes[]") for n in as_list(top.get("notes"), "notes")),
            gpu=gpu,
            memory=read_memory(top.get("memory")),
            operators=read_operators(top.get("operators")),
            outliers=read_outliers(
                top.get("outliers"), n_keys, sizes, range(steps.skipped, steps.count)
            ),
            worker_threads=tuple(
                _thread(t, f"worker_threads[{i}]", keys)
                for i, t in enumerate(as_list(top.get("worker_threads", []), "worker_threads"))
            ),
            trace=read_trace(top.get("trace"), n_keys, 0 if gpu is None else len(gpu.kernels)),
            phases=read_phases(top.get("phases")),
        )


def _meta(value: object) -> dict[str, str | int | float | bool | None]:
    out: dict[str, str | int | float | bool | None] = {}
    for k, v in as_dict(value, "meta").items():
        if v is not None and type(v) not in (str, int, float, bool):
            raise fail(f"meta[{show(k)}]", v, "a string, number, true, false or null")
        if type(v) is float:
            as_float(v, f"meta[{show(k)}]")
        name = as_str(k, "meta key")
        # Wall clock times are above 2**53 ns and therefore strings in a file, see as_int().
        is_time = name.endswith("_ns") and type(v) is str
        out[name] = as_int(v, f"meta[{show(k)}]") if is_time else v
    return out


def read_forms(top: Mapping[str, Any], n_keys: int) -> dict[int, str]:
    """Return how keys were called first, by their number, where it is not the short form."""
    # Earlier versions told one form, and the first ones none.
    earlier = [[i, "implicit"] for i in as_list(top.get("implicit", []), "implicit")]
    forms = {}
    for row in as_list(top.get("forms", earlier), "forms"):
        pair = as_list(row, "forms[]")
        if len(pair) != 2 or pair[1] not in CALL_FORMS:
            raise fail("forms[]", row, f"[key, form], form in {CALL_FORMS}")
        forms[as_int(pair[0], "forms[]", 0, n_keys - 1)] = as_str(pair[1], "forms[]")
    return forms


def _key(value: object, i: int, form: str) -> Key:
    items = as_list(value, f"keys[{i}]")
    if len(items) != 5 or items[0] not in KINDS:
        raise fail(f"keys[{i}]", value, f"[kind, file, line, name, qualname], kind in {KINDS}")
    kind, file, line, name, qualname = items
    where = f"keys[{i}]"
    return Key(
        as_str(kind, where),
        as_str(file, where),
        as_int(line, where),
        as_str(name, where),
        as_str(qualname, where),
        form,
    )


def _parents(value: object, where: str) -> tuple[int, ...]:
    items = as_list(value, where)
    if not items or type(items[0]) is not int or items[0] != -1:
        raise fail(where, items[0] if items else items, "a root row with parent -1 first")
    for row, above in enumerate(items):
        if row and not (type(above) is int and 0 <= above < row):
            raise fail(f"{where}[{row}]", above, "an earlier row")
    return tuple(items)


def _thread(value: object, where: str, keys: Sequence[Key]) -> ThreadTree:
    t = as_dict(value, where)
    parent = _parents(t.get("parent"), f"{where}.parent")
    n = len(parent)
    key = as_column(t, "key", where, n, len(keys) - 1)
    roots = {k for k, item in enumerate(keys) if item.kind == "root"}
    for row, k in enumerate(key):
        if (k in roots) != (row == 0):
            raise fail(f"{where}.key[{row}]", keys[k].kind, "kind root in row 0 and only there")
    return ThreadTree(
        ident=as_int(t.get("ident"), f"{where}.ident", 0, 2**64 - 1),
        name=as_str(t.get("name"), f"{where}.name"),
        ended=t.get("ended") is True,
        nodes=NodeTable(
            parent=parent,
            key=key,
            calls=as_column(t, "calls", where, n),
            resumes=as_column(t, "resumes", where, n),
            self_ns=as_column(t, "self_ns", where, n),
            phase=_phase_column(t, where, parent),
            idle_ns=_idle_column(t, where),
        ),
    )


def _phase_column(t: Mapping[str, object], where: str, parent: Sequence[int]) -> tuple[int, ...]:
    # Runs saved before there were phases lack it.
    if not t.get("phase"):
        return ()
    phase = as_column(t, "phase", where, len(parent), len(RUN_PHASES) - 1)
    for row, above in enumerate(parent):
        if above > 0 and phase[row] != phase[above]:
            raise fail(f"{where}.phase[{row}]", phase[row], "the phase of its parent")
    return phase


def _idle_column(t: Mapping[str, object], where: str) -> tuple[int, ...]:
    if not t.get("idle_ns"):
        return ()
    # A run saved by an earlier version knows fewer phases.
    known = min(len(RUN_PHASES), len(as_list(t["idle_ns"], f"{where}.idle_ns")))
    return as_column(t, "idle_ns", where, known) + (0,) * (len(RUN_PHASES) - known)


def _hist(value: object, where: str) -> Histogram:
    rows: list[tuple[int, int, int]] = []
    last = 0
    for i, item in enumerate(as_list(value, where)):
        low, high, count = as_ints(item, f"{where}[{i}]", 3)
        if low < last or high <= low:
            raise fail(f"{where}[{i}]", item, "ascending buckets that do not overlap")
        last = high
        rows.append((low, high, count))
    return Histogram(tuple(rows))


def _section(value: object, i: int, n_keys: int, n_threads: int) -> SectionStats:
    where = f"sections[{i}]"
    s = as_dict(value, where)
    number = {
        name: as_int(s.get(name), f"{where}.{name}")
        for name in ("count", "sum_ns", "outer_ns", "min_ns", "max_ns", "errors", "open")
    }
    return SectionStats(
        key=as_int(s.get("key"), f"{where}.key", 0, n_keys - 1),
        thread=as_int(s.get("thread"), f"{where}.thread", 0, n_threads - 1),
        hist=_hist(s.get("hist"), f"{where}.hist"),
        phase=as_int(s.get("phase", STEPS), f"{where}.phase", 0, len(RUN_PHASES) - 1),
        **number,
    )


def _steps(value: object, n_keys: int, tree_sizes: Sequence[int]) -> Steps:
    s = as_dict(value, "steps")
    more = read_split(s, n_keys, as_int(s.get("sum_ns"), "steps.sum_ns"), tree_sizes)
    return Steps(
        count=as_int(s.get("count"), "steps.count"),
        skipped=as_int(s.get("skipped"), "steps.skipped"),
        sum_ns=as_int(s.get("sum_ns"), "steps.sum_ns"),
        sum_sq=as_float(s.get("sum_sq"), "steps.sum_sq"),
        min_ns=as_int(s.get("min_ns"), "steps.min_ns"),
        max_ns=as_int(s.get("max_ns"), "steps.max_ns"),
        recent_ns=tuple(
            as_int(v, "steps.recent_ns") for v in as_list(s.get("recent_ns"), "steps.recent_ns")
        ),
        hist=_hist(s.get("hist"), "steps.hist"),
        rows=tuple(
            StepRow(*as_ints(r, f"steps.rows[{i}]", 3, first_below=n_keys))
            for i, r in enumerate(as_list(s.get("rows"), "steps.rows"))
        ),
        series=more.series,
        split=more.split,
        split_missing=more.split_missing,
        split_places=more.split_places,
        gc_runs=more.gc_runs,
        apart=as_int(s.get("apart", 0), "steps.apart"),
        unprofiled=read_plain_steps(s.get("unprofiled"), n_keys),
    )


def _loader(value: object, i: int) -> LoaderStats:
    where = f"loaders[{i}]"
    v = as_dict(value, where)
    phases: dict[str, tuple[int, int]] = {}
    for name, pair in as_dict(v.get("phases"), f"{where}.phases").items():
        count, sum_ns = as_ints(pair, f"{where}.phases[{show(name)}]", 2)
        phases[as_str(name, f"{where}.phases key")] = (count, sum_ns)
    weight = v.get("weight")
    return LoaderStats(
        name=as_str(v.get("name"), f"{where}.name"),
        split=as_str(v.get("split"), f"{where}.split"),
        batches=as_int(v.get("batches"), f"{where}.batches"),
        phases=phases,
        weight=None if weight is None else as_float(weight, f"{where}.weight"),
        workers=read_workers(v.get("workers"), f"{where}.workers"),
    )


def _calibration(value: object) -> Calibration | None:
    if value is None:
        return None
    c = as_dict(value, "calibration")

    def cost(name: str) -> EventCost:
        pair = as_list(c.get(name), f"calibration.{name}")
        if len(pair) != 2:
            raise fail(f"calibration.{name}", pair, "two numbers")
        inside, outside = (as_float(v, f"calibration.{name}") for v in pair)
        if not (0 <= inside <= _MAX_COST_NS and 0 <= outside <= _MAX_COST_NS):
            raise fail(f"calibration.{name}", [inside, outside], "two times of 0 to 1 s")
        return EventCost(inside, outside)

    # Runs saved before it was measured have none.
    slowdown = as_float(c.get("slowdown", 1.0), "calibration.slowdown")
    if not 1.0 <= slowdown <= 100.0:
        raise fail("calibration.slowdown", slowdown, "a factor of 1 to 100")

    def later(name: str, as_known: EventCost) -> EventCost:
        """A kind that earlier versions did not tell from another."""
        return cost(name) if name in c else as_known

    python, builtin, resume = cost("python"), cost("c"), cost("resume")
    return Calibration(
        python=python,
        resume=resume,
        c=builtin,
        method=cost("method"),
        implicit=later("implicit", python),
        constructor=later("constructor", builtin),
        init=later("init", python),
        general=later("general", python),
        unpacked=later("unpacked", python),
        c_general=later("c_general", builtin),
        fed=later("fed", resume),
        made=later("made", EventCost(0.0, 0.0)),
        text=later("text", later("constructor", builtin)),
        slowdown=slowdown,
    )
