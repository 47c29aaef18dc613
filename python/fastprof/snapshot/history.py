"""The run over time: segments of it, the newest fine and the oldest coarse.

A segment has sums only, so two neighbours make one (:func:`joined`), and three make the same one in
either order.  Only the sampled steps of a segment are limited, to :data:`SAMPLED`.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import log2
from typing import Annotated

from fastprof.snapshot.codec import Count, KeyIndex, MaybeEmpty, Record, Table, sized
from fastprof.snapshot.history_sums import GpuClock, Loading, Passes, added
from fastprof.snapshot.kinds import AtMost, Choice, Index, Integer, Known, WrongError
from fastprof.snapshot.run_phases import RUN_PHASES

#: Segments of a history, contexts of all segments together, changes that were found.
MAX_SEGMENTS, MAX_CONTEXTS, MAX_CHANGES = 1024, 1024, 64
#: Sampled steps of a segment.
SAMPLED = 16
#: Long steps of a segment that are kept, and how many times the median they take.
LONG, LONG_TIMES = 8, 4.0
_MAX_SECTIONS = 64

#: Buckets of step times per doubling: a bucket's middle is within 1.1 % of its times.
_PER_DOUBLING = 32
#: The first bucket; shorter steps belong to it.
_LOWEST = 10 * _PER_DOUBLING
_MAX_BUCKET = 63 * _PER_DOUBLING

_Section = Annotated[int, Index("history_sections")]
_Context = Annotated[int, Index("history_contexts")]
_Bucket = Annotated[int, Integer(_LOWEST, _MAX_BUCKET)]
_Phase = Annotated[int, Integer(0, len(RUN_PHASES) - 1)]


def bucket(ns: int) -> int:
    """Return the bucket of a step's time."""
    return max(_LOWEST, int(log2(ns) * _PER_DOUBLING)) if ns > 0 else _LOWEST


def bounds(number: int) -> tuple[int, int]:
    """Return the least time of a bucket, and that of the next one, in ns."""
    low = 0 if number == _LOWEST else round(2 ** (number / _PER_DOUBLING))
    return low, round(2 ** ((number + 1) / _PER_DOUBLING))


def long_part(hist: Iterable[tuple[int, int]]) -> tuple[float, int, float]:
    """Return the median of step times, the number of very long ones, and their sum, in ns.

    Args:
        hist: (bucket, steps), in the order of buckets.
    """
    rows = list(hist)
    half, below, middle = sum(n for _, n in rows) / 2, 0, 0.0
    count, long_ns = 0, 0.0
    for number, n in rows:
        low, end = bounds(number)
        below += n
        if not middle and below >= half:
            middle = (low + end) / 2
        if middle and low > LONG_TIMES * middle:
            count += n
            long_ns += n * (low + end) / 2
    return middle, count, long_ns


@dataclass(frozen=True, slots=True)
class Contexts(Table):
    """A calling-context tree without its root: ``parent`` -1 is below it, parents come first."""

    parent: tuple[Annotated[int, Integer(-1)], ...] = ()
    key: tuple[KeyIndex, ...] = ()
    phase: tuple[_Phase, ...] = ()

    def check(self, known: Known) -> None:
        Table.check(self, known)
        if len(self.parent) > MAX_CONTEXTS:
            raise WrongError(len(self.parent), f"at most {MAX_CONTEXTS} contexts")
        for row, above in enumerate(self.parent):
            if above >= row:
                raise WrongError(above, "an earlier row", f".parent[{row}]")


@dataclass(frozen=True, slots=True)
class Spent(Table):
    """Calls and own time of contexts."""

    context: tuple[_Context, ...] = ()
    calls: tuple[Count, ...] = ()
    self_ns: tuple[Count, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampled(Table):
    """Some steps of a segment, as columns of :class:`~fastprof.snapshot.steps.StepSeries`."""

    number: Annotated[tuple[Count, ...], AtMost(SAMPLED)] = ()
    wall_ns: tuple[Count, ...] = ()
    gc_ns: MaybeEmpty[tuple[Count, ...]] = ()
    cpu_wait_ns: MaybeEmpty[tuple[Count, ...]] = ()
    #: Times of top-level sections, a row per section of the history.
    sections: Annotated[tuple[tuple[Count, ...], ...], AtMost(_MAX_SECTIONS)] = ()

    def check(self, known: Known) -> None:
        Table.check(self, known)
        for i, column in enumerate(self.sections):
            if len(column) != len(self.number):
                raise WrongError(
                    len(column), f"as many rows as steps ({len(self.number)})", f".sections[{i}]"
                )


@dataclass(frozen=True, slots=True)
class Long(Table):
    """Very long steps of a segment, by number; ``section_ns`` is the longest section's time.

    ``section`` is -1 if the step has none.
    """

    number: Annotated[tuple[Count, ...], AtMost(LONG)] = ()
    wall_ns: tuple[Count, ...] = ()
    section: tuple[Annotated[int, Integer(-1, _MAX_SECTIONS - 1)], ...] = ()
    section_ns: tuple[Count, ...] = ()
    gc_ns: tuple[Count, ...] = ()
    cpu_wait_ns: tuple[Count, ...] = ()

    def rows(self) -> Iterable[tuple[int, ...]]:
        """Return the steps, each as one row."""
        columns = self.number, self.wall_ns, self.section, self.section_ns
        return zip(*columns, self.gc_ns, self.cpu_wait_ns, strict=True)


@dataclass(frozen=True, slots=True)
class SegmentSteps(Record):
    """Sums over the steps of a segment that have times.

    ``hist`` are (bucket, steps), ``rows`` (section, steps with it, ns) of top-level sections.
    ``faults`` are page faults that waited for the disk.  ``long`` are steps that took more than
    four times the segment's median (None: an older file).
    """

    count: Count = 0
    sum_ns: Count = 0
    sum_sq: float = 0.0
    min_ns: Count = 0
    max_ns: Count = 0
    cpu_ns: Count = 0
    gc_ns: Count = 0
    cpu_wait_ns: Count = 0
    faults: Count = 0
    hist: tuple[tuple[_Bucket, Count], ...] = ()
    rows: Annotated[tuple[tuple[_Section, Count, Count], ...], AtMost(_MAX_SECTIONS)] = ()
    sampled: Sampled = Sampled()
    long: Long | None = None


@dataclass(frozen=True, slots=True)
class Segment(Record):
    """A part of the run; times are ns.

    ``first`` is the 0-based number of its first step, ``steps`` the number of its steps.
    ``start_ns`` and ``end_ns`` count from the start of the run.  ``full`` and ``plain`` are its
    steps with the function hook and without it.  ``phases_ns`` is its time per phase of the run,
    ``idle_ns`` the part outside of all contexts.  ``rss_bytes`` is the process's memory at its end,
    ``gpu_bytes`` what torch's allocator had given out.  ``joined`` is the number of segments in it.
    ``loading`` is of the training loader's workers, ``waits_ns`` the time that steps with functions
    waited for other ranks, ``passes`` the passes that began (None: unknown).
    """

    first: Count
    steps: Count
    start_ns: Count
    end_ns: Count
    full: SegmentSteps = SegmentSteps()
    plain: SegmentSteps = SegmentSteps()
    phases_ns: Annotated[tuple[Count, ...], AtMost(len(RUN_PHASES))] = ()
    idle_ns: Annotated[tuple[Count, ...], AtMost(len(RUN_PHASES))] = ()
    spent: Spent = Spent()
    rss_bytes: Count | None = None
    gpu_bytes: Count | None = None
    joined: Annotated[int, Integer(1)] = 1
    loading: Loading | None = None
    gpu_clock: GpuClock | None = None
    waits_ns: Count | None = None
    passes: Passes | None = None


#: Kinds of changes: steps take longer or shorter since a step, or ever longer; very long steps take
#: more of the time; passes of validation and checkpoints take longer or shorter.
CHANGES = ("shift", "drift", "stalls", "validation", "checkpoint")


@dataclass(frozen=True, slots=True)
class Change(Record):
    """A change that was found: times before and since step ``first``, in ns.

    They are means of all steps, or of passes.  ``at_ns`` is when that step began, of long steps and
    of passes when their segment did, in ns since the start of the run.  ``text`` says so with the
    causes that were found, and nothing else.
    """

    kind: Annotated[str, Choice(*CHANGES)]
    first: Count
    at_ns: Count
    before_ns: Count
    after_ns: Count
    text: str


@dataclass(frozen=True, slots=True)
class History(Record):
    """The segments, oldest first, of one process.

    ``began_unix_ms`` is when the run began by the wall clock; later times count from there by a
    clock that nobody steps.
    ``sections`` are keys of top-level sections; rows of segments refer to them.
    """

    sections: Annotated[
        tuple[KeyIndex, ...], AtMost(_MAX_SECTIONS, "sections"), sized("history_sections")
    ] = ()
    began_unix_ms: Count = 0
    contexts: Annotated[Contexts, sized("history_contexts")] = Contexts()
    segments: Annotated[tuple[Segment, ...], AtMost(MAX_SEGMENTS, "segments")] = ()
    changes: Annotated[tuple[Change, ...], AtMost(MAX_CHANGES, "changes")] = ()

    def check(self, known: Known) -> None:
        end = end_ns = 0
        for i, segment in enumerate(self.segments):
            if segment.first < end or segment.start_ns < end_ns:
                raise WrongError(segment.first, "segments one after the other", f".segments[{i}]")
            end, end_ns = segment.first + segment.steps, segment.end_ns
            if end_ns < segment.start_ns:
                raise WrongError(end_ns, "an end after the start", f".segments[{i}].end_ns")
            for steps in (segment.full, segment.plain):
                if len(steps.sampled.sections) > len(self.sections):
                    wanted = f"no more sections than the history has ({len(self.sections)})"
                    raise WrongError(len(steps.sampled.sections), wanted, f".segments[{i}]")


# ---- joining


def joined(a: Segment, b: Segment) -> Segment:
    """Return two neighbours, of which ``a`` is the earlier one, as one."""
    return Segment(
        first=a.first,
        steps=b.first + b.steps - a.first,
        start_ns=a.start_ns,
        end_ns=b.end_ns,
        full=_steps(a.full, b.full),
        plain=_steps(a.plain, b.plain),
        phases_ns=_sums(a.phases_ns, b.phases_ns),
        idle_ns=_sums(a.idle_ns, b.idle_ns),
        spent=_spent(a.spent, b.spent),
        rss_bytes=a.rss_bytes if b.rss_bytes is None else b.rss_bytes,
        gpu_bytes=a.gpu_bytes if b.gpu_bytes is None else b.gpu_bytes,
        joined=a.joined + b.joined,
        loading=added(a.loading, b.loading),
        gpu_clock=added(a.gpu_clock, b.gpu_clock),
        waits_ns=None if a.waits_ns is None or b.waits_ns is None else a.waits_ns + b.waits_ns,
        passes=added(a.passes, b.passes),
    )


def _sums(a: Iterable[int], b: Iterable[int]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip_longest(a, b, fillvalue=0))


def _steps(a: SegmentSteps, b: SegmentSteps) -> SegmentSteps:
    if not a.count or not b.count:
        return a if a.count else b
    counts = dict(a.hist)
    for number, n in b.hist:
        counts[number] = counts.get(number, 0) + n
    rows = {section: (n, ns) for section, n, ns in a.rows}
    for section, n, ns in b.rows:
        m, more = rows.get(section, (0, 0))
        rows[section] = n + m, ns + more
    return SegmentSteps(
        count=a.count + b.count,
        sum_ns=a.sum_ns + b.sum_ns,
        sum_sq=a.sum_sq + b.sum_sq,
        min_ns=min(a.min_ns, b.min_ns),
        max_ns=max(a.max_ns, b.max_ns),
        cpu_ns=a.cpu_ns + b.cpu_ns,
        gc_ns=a.gc_ns + b.gc_ns,
        cpu_wait_ns=a.cpu_wait_ns + b.cpu_wait_ns,
        faults=a.faults + b.faults,
        hist=tuple(sorted(counts.items())),
        rows=tuple((section, n, ns) for section, (n, ns) in sorted(rows.items())),
        sampled=_sampled(a.sampled, b.sampled),
        long=None
        if a.long is None or b.long is None
        else longest([*a.long.rows(), *b.long.rows()]),
    )


def longest(rows: Iterable[tuple[int, ...]]) -> Long:
    """Return the longest of steps, each a row of :class:`Long`; of equal ones the earlier."""
    kept = sorted(sorted(rows, key=lambda row: (-row[1], row[0]))[:LONG])
    return Long(*zip(*kept, strict=True))


def _spent(a: Spent, b: Spent) -> Spent:
    if not len(a) or not len(b):
        return a if len(a) else b
    found = {at: (n, ns) for at, n, ns in zip(a.context, a.calls, a.self_ns, strict=True)}
    for at, n, ns in zip(b.context, b.calls, b.self_ns, strict=True):
        m, more = found.get(at, (0, 0))
        found[at] = n + m, ns + more
    return spent_of(found)


def spent_of(found: dict[int, tuple[int, int]]) -> Spent:
    """Return calls and own times by context as a table that needs little memory."""
    order = sorted(found)
    columns = order, [found[at][0] for at in order], [found[at][1] for at in order]
    return Spent(*(array("q", column) for column in columns))  # type: ignore[arg-type]


def _sampled(a: Sampled, b: Sampled) -> Sampled:
    """Return at most :data:`SAMPLED` of the steps, evenly from both."""
    wide = max(len(a.sections), len(b.sections))
    both = (
        [*a.number, *b.number],
        [*a.wall_ns, *b.wall_ns],
        [*a.gc_ns, *b.gc_ns],
        [*a.cpu_wait_ns, *b.cpu_wait_ns],
        *(
            [*_column(a, i), *_column(b, i)]
            for i in range(wide)
        ),
    )  # fmt: skip
    n = len(both[0])
    kept = range(n) if n <= SAMPLED else [(2 * i + 1) * n // (2 * SAMPLED) for i in range(SAMPLED)]
    columns = [tuple(column[i] for i in kept) if len(column) == n else () for column in both]
    return Sampled(columns[0], columns[1], columns[2], columns[3], tuple(columns[4:]))


def _column(of: Sampled, section: int) -> Sequence[int]:
    return of.sections[section] if section < len(of.sections) else (0,) * len(of)


# ---- bounded memory

#: Segments of one size; of more, the oldest two become one.
PER_SIZE = 32


def add(segments: list[Segment], new: Segment) -> None:
    """Add the newest segment; join pairs of old ones, so that few are left of each size.

    A run of n segments keeps at most ``PER_SIZE * log2(n)``.
    """
    segments.append(new)
    end, size = len(segments), 1  # the segments of one size are neighbours
    while end > PER_SIZE and segments[end - PER_SIZE - 1].joined == size:
        first = end - PER_SIZE - 1
        segments[first : first + 2] = [joined(segments[first], segments[first + 1])]
        end, size = first + 1, 2 * size


def frozen(segment: Segment) -> Segment:
    """Return a segment for a file."""
    spent = segment.spent
    columns = tuple(spent.context), tuple(spent.calls), tuple(spent.self_ns)
    return replace(segment, spent=Spent(*columns))
