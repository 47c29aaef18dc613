"""The recorded data of a process, raw, frozen and serialisable: one :class:`Snapshot`.

It connects capture and report.  Capture produces it and knows nothing of reports; reports consume
it and need neither the extension nor the live process.  All times are integer nanoseconds of one
monotonic clock.  Nothing here holds a live object.

``Snapshot.from_dict`` validates untrusted input: its result is internally consistent (indices in
range, columns of equal length, parents before children, counters not negative); anything else
raises :class:`SnapshotError`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import lt, ne
from typing import Annotated, Any

from fastprof.errors import SnapshotError
from fastprof.snapshot.calibration import Calibration
from fastprof.snapshot.codec import (
    Apart,
    Count,
    Flat,
    KeyIndex,
    Learn,
    MaybeEmpty,
    Record,
    Row,
    Table,
    ThreadIndex,
    Unsigned,
    kind_of,
    read,
)
from fastprof.snapshot.compilations import CompileSnapshot
from fastprof.snapshot.gpu import GpuSnapshot, only_phases
from fastprof.snapshot.history import History
from fastprof.snapshot.kinds import (
    EXACT,
    AtMost,
    Choice,
    Integer,
    Kind,
    Known,
    Number,
    WrongError,
    an_object,
    at,
    show,
)
from fastprof.snapshot.lines import MAX_LINES, LineSamples
from fastprof.snapshot.loaders import WorkerStats
from fastprof.snapshot.memory import MemorySnapshot
from fastprof.snapshot.operators import OperatorSnapshot
from fastprof.snapshot.outliers import OutlierSnapshot
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS, PhaseTime, phase_numbers
from fastprof.snapshot.stages import MAX_STAGES, Stage
from fastprof.snapshot.steps import (
    MAX_PLACES,
    PlainCpu,
    PlainSteps,
    SplitKind,
    SplitPlace,
    StepSeries,
)
from fastprof.snapshot.trace import TraceSnapshot

SCHEMA = "fastprof/1"

#: Kinds of tree keys.  ``root`` is the thread itself, ``truncated`` represents contexts beyond the
#: depth or node cap, ``type`` is a constructor or other callable object that only the monitoring
#: backend can see.
KINDS = ("root", "truncated", "python", "c", "type", "section")

#: The form of a function's call: ``short``: by a call instruction that has a fast path into it
#: without the hook; ``implicit``: by no call instruction (an operator, an attribute, C code) or,
#: for a type, by none that enters its ``__init__``; ``general``: with keywords, or to a function
#: that takes any; ``unpacked``: as ``f(*args, **kwargs)``.
CALL_FORMS = ("short", "implicit", "general", "unpacked")

_Form = Annotated[str, Choice(*CALL_FORMS)]
_Phase = Annotated[int, Integer(0, len(RUN_PHASES) - 1)]
_COUNTS = kind_of(tuple[Count, ...])
_BUCKETS = kind_of(tuple[tuple[Count, Count, Count], ...])


class _Meta(Kind):
    """Strings, numbers, booleans and null by name."""

    plain = False

    def read(self, value: object, known: Known) -> dict[str, str | int | float | bool | None]:
        out: dict[str, str | int | float | bool | None] = {}
        for name, v in an_object(value).items():
            if not isinstance(name, str):
                raise WrongError(name, "a string", " key")
            path = f"[{show(name)}]"
            if v is not None and type(v) not in (str, int, float, bool):
                raise WrongError(v, "a string, number, true, false or null", path)
            if type(v) is float:
                at(path, Number(), v, known)
            # Wall clock times exceed EXACT and are therefore strings in a file.
            is_time = name.endswith("_ns") and type(v) is str
            out[name] = at(path, Integer(), v, known) if is_time else v
        return out

    def write(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return dict(value)


#: Numbers of phases before there were windows of time, and before compiling was one.
_OLD_PHASES = 7, 9


class _Idle(Kind):
    """Times per phase, or nothing."""

    plain = False

    def read(self, value: object, known: Known) -> tuple[int, ...]:
        times: tuple[int, ...] = _COUNTS.read(value, known)
        if len(times) not in (0, *_OLD_PHASES, len(RUN_PHASES)):
            raise WrongError(len(times), f"{len(RUN_PHASES)} rows")
        return times + (0,) * (len(RUN_PHASES) - len(times)) if times else ()

    def write(self, value: Sequence[int]) -> list[int]:
        return list(value)


# Not frozen, although nothing changes one: there may be a million, and to make a frozen one takes
# four times as long.
@dataclass(slots=True, unsafe_hash=True)
class Key(Row):
    """The function, section or thread of a tree node.

    ``name`` is cProfile's label (``co_name`` or ``<built-in method builtins.len>``); ``qualname``
    is the qualified name.  C functions have file ``"~"`` and line 0, sections have file ``""`` and
    line 0.  ``form``, one of ``CALL_FORMS``, is the form of the first call; only the cost of the
    hook depends on it.
    """

    kind: Annotated[str, Choice(*KINDS)]
    file: str
    line: Count
    name: str
    qualname: str
    form: Apart[_Form] = field(default="short", compare=False)


@dataclass(frozen=True, slots=True)
class NodeTable(Table):
    """A calling-context tree as columns; row 0 is the root, parents precede children.

    ``parent[0]`` is -1.  ``calls`` counts entries, ``resumes`` counts continuations of
    generators and coroutines (cProfile's ncalls = calls + resumes).  ``self_ns`` is
    exclusive wall time, raw (hook cost included): the sum over a subtree is that
    subtree's inclusive time.
    """

    parent: tuple[Annotated[int, Integer(-1, EXACT)], ...]
    key: tuple[KeyIndex, ...]
    calls: tuple[Count, ...]
    resumes: tuple[Count, ...]
    self_ns: tuple[Count, ...]
    #: Phase of the run per node, an index of ``RUN_PHASES``; empty: all are 0.  Nodes of different
    #: phases may have the same parent and key, if the parent is the root.
    phase: MaybeEmpty[tuple[_Phase, ...]] = ()
    #: Time per phase outside of all functions; the sum is ``self_ns[0]``.  Empty: all of it belongs
    #: to phase 0.
    idle_ns: Annotated[tuple[int, ...], _Idle()] = ()
    #: Cache of derived values, not recorded data.
    known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.parent)

    def check(self, known: Known) -> None:
        n = len(self)
        # A tree may have a million rows: search the wrong one only if there is one.
        if not n or self.parent[0] != -1:
            raise WrongError(self.parent[:1], "a root row with parent -1 first", ".parent")
        if not all(map(lt, self.parent, range(n))) or -1 in self.parent[1:]:
            row = next(i for i, above in enumerate(self.parent) if not -1 < above < i and i)
            raise WrongError(self.parent[row], "an earlier row", f".parent[{row}]")
        Table.check(self, known)
        if self.key[0] not in known.roots or not known.roots.isdisjoint(self.key[1:]):
            row = next(i for i, k in enumerate(self.key) if (k in known.roots) != (i == 0))
            wanted = "a key of kind root in row 0 and only there"
            raise WrongError(self.key[row], wanted, f".key[{row}]")
        if any(self.phase):
            other = map(ne, self.phase, map(self.phase.__getitem__, self.parent))
            for row in compress(range(n), other):
                if self.parent[row] > 0:
                    raise WrongError(self.phase[row], "the phase of its parent", f".phase[{row}]")

    def only(self, phases: Collection[int]) -> "NodeTable":
        """Return the same rows, without calls and time in rows of other phases."""
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
class ThreadTree(Record):
    """One thread's tree.  ``ident`` 0 is the merged tree of ended threads."""

    ident: Unsigned
    name: str
    ended: bool
    nodes: Flat[NodeTable]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Log-linear histogram of durations: rows ``(low_ns, high_ns, count)``, ascending.

    Bucket widths are below 1/64 of their lower bound, so a midpoint is within 0.8 %.
    """

    rows: tuple[tuple[int, int, int], ...] = ()


class _Buckets(Kind):
    """A histogram, saved as its rows."""

    plain = False

    def read(self, value: object, known: Known) -> Histogram:
        rows = _BUCKETS.read(value, known)
        end = 0
        for i, (low, high, _count) in enumerate(rows):
            if low < end or high <= low:
                raise WrongError([low, high], "ascending buckets that do not overlap", f"[{i}]")
            end = high
        return Histogram(rows)

    def write(self, value: Histogram) -> list[list[int]]:
        return [list(row) for row in value.rows]


_Hist = Annotated[Histogram, _Buckets()]


@dataclass(frozen=True, slots=True)
class SectionStats(Record):
    """Every use of one section name in one thread and one phase of the run.

    ``sum_ns`` adds every entry's duration; ``outer_ns`` only entries that were not
    inside another open entry of the same name (so recursion is not counted twice).
    ``errors`` counts entries left by an exception, ``open`` entries not closed yet.
    """

    key: KeyIndex
    thread: ThreadIndex
    count: Count
    sum_ns: Count
    outer_ns: Count
    min_ns: Count
    max_ns: Count
    errors: Count
    open: Count
    hist: _Hist
    #: The phase of the run in which the entries began: an index of ``RUN_PHASES``.
    phase: _Phase = STEPS


@dataclass(frozen=True, slots=True)
class StepRow(Row):
    """Time of one top-level section inside steps: the number of ``steps`` with it, their sum."""

    key: KeyIndex
    steps: Count
    sum_ns: Count


@dataclass(frozen=True, slots=True)
class Steps(Record):
    """Step boundaries of the training thread.

    ``count`` is all steps.  Every other field leaves out the first ``skipped`` of them (warm-up),
    and ``apart`` later ones, most of which ran without the function hook: ``unprofiled``.
    ``sum_ns`` is their wall time, ``sum_sq`` the sum of squares in seconds squared, ``recent_ns``
    the last durations (bounded).  ``rows`` are the top-level sections; time outside of them is
    unaccounted.
    """

    count: Count = 0
    skipped: Count = 0
    sum_ns: Count = 0
    sum_sq: float = 0.0
    min_ns: Count = 0
    max_ns: Count = 0
    recent_ns: tuple[Count, ...] = ()
    hist: _Hist = Histogram()
    rows: tuple[StepRow, ...] = ()
    #: The last steps one by one.
    series: StepSeries = field(default_factory=StepSeries)
    #: (kind, ns) over all measured steps; they add up to ``sum_ns``.  See
    #: :data:`~fastprof.snapshot.steps.SPLIT_KINDS`.  Empty: unknown.
    split: tuple[tuple[SplitKind, Count], ...] = ()
    #: The kinds without a row, each with its reason in a sentence.
    split_missing: tuple[str, ...] = ()
    split_places: Annotated[tuple[SplitPlace, ...], AtMost(MAX_PLACES)] = ()
    #: Garbage collections in the measured steps per generation; empty: unknown.
    gc_runs: tuple[Count, ...] = ()
    apart: Count = 0
    unprofiled: tuple[PlainSteps, ...] = ()
    unprofiled_cpu: tuple[PlainCpu, ...] | None = None
    #: The thread whose steps these are; None: not known, as in runs of earlier versions.
    thread: ThreadIndex | None = None

    def check(self, known: Known) -> None:
        kinds = dict(self.split)
        if len(kinds) != len(self.split):
            raise WrongError(list(self.split), "each kind once", ".split")
        if kinds and sum(kinds.values()) != self.sum_ns:
            wanted = f"rows that add up to sum_ns ({self.sum_ns})"
            raise WrongError(sum(kinds.values()), wanted, ".split")
        if len(self.gc_runs) not in (0, 3):
            raise WrongError(len(self.gc_runs), "3 integers", ".gc_runs")

    @property
    def measured(self) -> int:
        """Number of steps that the times cover."""
        return max(0, self.count - self.skipped - self.apart)


@dataclass(frozen=True, slots=True)
class LoaderStats(Record):
    """One data loader over the whole run: batches, and per phase (count, sum_ns).

    ``phases`` maps ``data``, ``forward``, ``backward``, ``optimizer`` and ``batch_wait``.
    """

    name: str
    split: str
    batches: Count
    phases: Mapping[str, tuple[Count, Count]]
    weight: float | None = None
    #: For loaders of torch's only.
    workers: WorkerStats | None = None
    #: ``phases`` in steps without the function hook only.
    plain: Mapping[str, tuple[Count, Count]] | None = None


def learn_keys(known: Known, keys: Sequence[Key]) -> None:
    """Make trees and indices refer to ``keys``."""
    known.sizes["keys"] = len(keys)
    known.roots = frozenset(i for i, key in enumerate(keys) if key.kind == "root")


def _learn_threads(known: Known, threads: Sequence[ThreadTree]) -> None:
    known.sizes["threads"] = len(threads)
    known.trees = [len(tree.nodes) for tree in threads]


def _learn_steps(known: Known, steps: Steps) -> None:
    known.steps = range(steps.skipped, steps.count)


@dataclass(frozen=True, slots=True)
class Snapshot(Record):
    """All data recorded by one process.

    ``meta`` holds strings and numbers only (python, platform, pid, rank, backend, clock,
    started_unix_ns, ...).  ``duration_ns`` is recorded wall time.  ``counters`` count survived
    faults (``unbalanced``, ``dropped``, ``wrong_thread`` ...): nonzero ones belong in every report.
    ``notes`` are sentences for the reader.  ``gpu``, ``memory`` and ``operators`` are None without
    that layer.
    """

    meta: Annotated[Mapping[str, str | int | float | bool | None], _Meta()]
    duration_ns: Count
    keys: Annotated[tuple[Key, ...], Learn(learn_keys)] = ()
    threads: Annotated[tuple[ThreadTree, ...], Learn(_learn_threads)] = ()
    sections: tuple[SectionStats, ...] = ()
    steps: Annotated[Steps, Learn(_learn_steps)] = Steps()
    loaders: tuple[LoaderStats, ...] = ()
    calibration: Calibration | None = None
    counters: Mapping[str, Count] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    schema: str = SCHEMA
    gpu: GpuSnapshot | None = None
    memory: MemorySnapshot | None = None
    operators: OperatorSnapshot | None = None
    #: The slowest steps in detail; None: not kept.
    outliers: OutlierSnapshot | None = None
    #: One tree per loader: the functions of all its worker processes together.  It is not part of
    #: this process's time.
    worker_threads: tuple[ThreadTree, ...] = ()
    #: None: there is no trace.
    trace: TraceSnapshot | None = None
    #: The time of each phase of the run; empty: the recording has no phases.
    phases: tuple[PhaseTime, ...] = ()
    #: Stages of the run; empty: one; None: recorded by an earlier fastprof.
    stages: Annotated[tuple[Stage, ...], AtMost(MAX_STAGES, "stages")] | None = None
    compilations: CompileSnapshot | None = None
    #: SHA-256 of source files by their paths; None: recorded by an earlier fastprof.
    sources: Mapping[str, str] | None = None
    #: Lines of the program's functions, in this process and the loaders' workers, from samples in
    #: windows of the steps; None: not sampled.
    lines: Annotated[tuple[LineSamples, ...], AtMost(MAX_LINES, "lines")] | None = None
    #: The steps without the function hook: all their fields are about those.  None: there are none.
    plain_steps: Steps | None = None
    #: The run over time; None: not kept.
    history: History | None = None
    #: Cache of derived values, not recorded data.
    known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def phase_ns(self, *names: str) -> int:
        """Return the recorded wall time of phases of the run in ns.

        Raises:
            ValueError: a name that is not in ``RUN_PHASES``.
        """
        wanted = {RUN_PHASES[number] for number in phase_numbers(names)}
        if not self.phases:
            return self.duration_ns if RUN_PHASES[STEPS] in wanted else 0
        return sum(phase.wall_ns for phase in self.phases if phase.name in wanted)

    def only(self, *names: str) -> "Snapshot":
        """Return the part of the snapshot in some phases of the run.

        Trees keep their rows, so indices of nodes stay valid; rows of other phases have no calls
        and no time.  Sections, GPU work and ``duration_ns`` are limited to the phases.  Steps,
        loaders, operators, memory and the trace are unchanged.

        Raises:
            ValueError: a name that is not in ``RUN_PHASES``.
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

    def check(self, known: Known) -> None:
        if len({phase.name for phase in self.phases}) != len(self.phases):
            raise WrongError(list(self.phases), "each phase once", ".phases")

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers for ``json.dumps``."""
        return {"schema": self.schema, **Record.to_dict(self), "forms": forms_of(self.keys)}

    @staticmethod
    def from_dict(data: object) -> "Snapshot":
        """Validate ``data`` (as from ``json.loads``) and return the snapshot.

        Raises:
            SnapshotError: a value is missing, of the wrong type, out of range or inconsistent; the
                message names the field.
        """
        schema = data.get("schema") if isinstance(data, dict) else None
        if isinstance(data, dict) and schema != SCHEMA:
            raise SnapshotError(f"schema is {show(schema)}, this fastprof reads {SCHEMA!r}")
        made = read(Snapshot, data, "")
        assert isinstance(data, dict)
        return replace(made, keys=with_forms(made.keys, data))


def forms_of(keys: Sequence[Key]) -> list[list[int | str]]:
    """Return the forms of keys as :func:`with_forms` reads them."""
    return [[i, key.form] for i, key in enumerate(keys) if key.form != "short"]


def with_forms(keys: Sequence[Key], data: Mapping[str, Any]) -> tuple[Key, ...]:
    """Return keys with the forms of their first calls, which a file stores separately.

    Raises:
        SnapshotError: an unknown form, or a form of an unknown key.
    """
    known = Known({"keys": len(keys)})
    forms = read(tuple[tuple[KeyIndex, _Form], ...], data.get("forms"), "forms", known)
    out = list(keys)
    for i, form in forms:
        out[i] = replace(out[i], form=form)
    return tuple(out)
