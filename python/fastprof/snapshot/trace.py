"""The trace's part of a snapshot: begin and end of events, in windows of the run.

Times are nanoseconds since the recording began, of the clock of all other times.  Tables are
columns of equal length.  Events of one thread are nested: of two, one contains the other, or they
do not overlap.
"""

from dataclasses import astuple, dataclass
from typing import Annotated

from fastprof.snapshot.codec import Count, KeyIndex, Record, Row, Table, Unsigned, sized
from fastprof.snapshot.kinds import MAX_INT, AtMost, Index, Integer, Known, WrongError

#: The recorder keeps this many windows and discards the oldest.
MAX_WINDOWS = 1024

#: Start plus duration still fits in 64 bits.
_MAX_TIME = MAX_INT // 2

_Time = Annotated[int, Integer(0, _MAX_TIME)]
_Small = Annotated[int, Integer(0, 2**32)]
_Thread = Annotated[int, Index("trace.threads")]


@dataclass(frozen=True, slots=True)
class TraceWindow(Row):
    """One window; ``end_ns`` of an open window is the time of the snapshot.

    ``first_step`` is the number, from 0, of the step in progress at its start; ``wall_ns`` is the
    wall clock at that moment, since 1970, or 0 if unknown.
    """

    start_ns: Count
    end_ns: Count
    first_step: Count
    wall_ns: Count


@dataclass(frozen=True, slots=True)
class TraceThread(Row):
    """A thread; ``native`` is the kernel's id for it; 0: unknown."""

    ident: Unsigned
    native: Unsigned
    name: str


@dataclass(frozen=True, slots=True)
class EventTable(Table):
    """Sections and functions; an event open at a window's edge is cut there."""

    key: tuple[KeyIndex, ...] = ()
    thread: tuple[_Thread, ...] = ()
    start_ns: tuple[_Time, ...] = ()
    ns: tuple[_Time, ...] = ()


@dataclass(frozen=True, slots=True)
class StepTable(Table):
    """Steps that ended in a window; ``number`` counts all steps of the run from 0."""

    number: tuple[Count, ...] = ()
    thread: tuple[_Thread, ...] = ()
    start_ns: tuple[_Time, ...] = ()
    ns: tuple[_Time, ...] = ()


#: As in :mod:`fastprof.snapshot.gpu`; activities that are not a kernel of a known name.
WHATS = ("htod", "dtoh", "dtod", "ptop", "htoh", "copy", "memset", "kernel")


@dataclass(frozen=True, slots=True)
class GpuTable(Table):
    """The activities of the device.

    ``what`` is a row of the snapshot's kernels, or ``-1 - i`` for ``WHATS[i]``.  ``x``, ``y`` and
    ``z`` are a kernel's grid (0 for others), ``bytes`` the number of bytes copied or set.
    ``launch`` is a row of :class:`CallTable`, or -1 if its launch is unknown.
    """

    what: tuple[Annotated[int, Index("kernels", -len(WHATS))], ...] = ()
    device: tuple[_Small, ...] = ()
    stream: tuple[_Small, ...] = ()
    start_ns: tuple[_Time, ...] = ()
    ns: tuple[_Time, ...] = ()
    bytes: tuple[Count, ...] = ()
    x: tuple[_Small, ...] = ()
    y: tuple[_Small, ...] = ()
    z: tuple[_Small, ...] = ()
    launch: tuple[Annotated[int, Integer(-1)], ...] = ()


#: Kinds of CUDA calls in the trace.
CALLS = ("launch", "graph", "sync")


@dataclass(frozen=True, slots=True)
class CallTable(Table):
    """Calls to CUDA: ``kind`` is a row of ``CALLS``; ``thread`` is -1 if unknown.

    ``ns`` is the time of the host in the call, 0 if unknown.
    """

    kind: tuple[Annotated[int, Integer(0, len(CALLS) - 1)], ...] = ()
    thread: tuple[Annotated[int, Index("trace.threads", -1)], ...] = ()
    start_ns: tuple[_Time, ...] = ()
    ns: tuple[_Time, ...] = ()
    correlation: tuple[_Small, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceSnapshot(Record):
    """The windows of a run.

    The ``lost`` oldest of ``kept`` events made room for newer ones, so the trace is complete only
    after ``lost_until_ns``.  It lacks ``brief`` calls, which took less than ``min_ns``.
    ``gpu_lost`` records of the device made room for newer ones.
    """

    min_ns: Count
    max_events: Count
    windows: Annotated[tuple[TraceWindow, ...], AtMost(MAX_WINDOWS, "windows")] = ()
    threads: Annotated[tuple[TraceThread, ...], sized("trace.threads")] = ()
    events: EventTable = EventTable()
    steps: StepTable = StepTable()
    gpu: GpuTable = GpuTable()
    calls: CallTable = CallTable()
    kept: Count = 0
    brief: Count = 0
    lost: Count = 0
    lost_until_ns: Count = 0
    no_memory: Count = 0
    gpu_lost: Count = 0
    gpu_lost_until_ns: Count = 0

    def check(self, known: Known) -> None:
        end = 0
        for i, window in enumerate(self.windows):
            if not end <= window.start_ns <= window.end_ns <= _MAX_TIME:
                raise WrongError(
                    list(astuple(window)), "windows one after the other", f".windows[{i}]"
                )
            end = window.end_ns
        last = max(self.gpu.launch, default=-1)
        if last >= len(self.calls):
            raise WrongError(last, f"rows of {len(self.calls)} calls", ".gpu.launch")

    def notes(self) -> tuple[str, ...]:
        """Return what the trace lacks, in sentences."""
        notes = []
        if self.brief:
            notes.append(
                f"Calls that took less than {self.min_ns / 1000:g} us (min_us of the option trace) "
                f"are not in the trace: {self.brief}."
            )
        for lost, until, what in (
            (self.lost, self.lost_until_ns, "events"),
            (self.gpu_lost, self.gpu_lost_until_ns, "records of the GPU"),
        ):
            if lost:
                notes.append(
                    f"The trace is whole only from {until / 1e9:.3f} s of the recording on: "
                    f"{lost:,} earlier {what} were overwritten by later ones (max_events of the "
                    f"option trace is {self.max_events:,})."
                )
        if len(self.windows) >= MAX_WINDOWS:
            notes.append(
                f"The trace has the last {MAX_WINDOWS} windows; earlier windows are missing."
            )
        if self.no_memory:
            notes.append(f"Events missing from the trace (out of memory): {self.no_memory}.")
        return tuple(notes)
