"""The trace's part of a snapshot: when things began and ended, in windows of the run.

Times are nanoseconds since the recording began, of the same clock as all else.  Tables
are columns of equal length.  Events of one thread are nested: of two, either one holds the
other or they do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Annotated, Any

from fastprof.snapshot.codec import (
    MAX_INT,
    AtMost,
    Count,
    Index,
    Integer,
    KeyIndex,
    Known,
    Later,
    Record,
    Row,
    Table,
    Unsigned,
    WrongError,
    sized,
)

#: By so much the device's clock may seem to be ahead of ours.
_CLOCKS_NS = 1_000_000

#: Windows kept by the recorder, which forgets the oldest.
MAX_WINDOWS = 1024

#: Start plus duration still fits in 64 bits.
_MAX_TIME = MAX_INT // 2

_Time = Annotated[int, Integer(0, _MAX_TIME)]
_Small = Annotated[int, Integer(0, 2**32)]
_Thread = Annotated[int, Index("trace.threads")]


@dataclass(frozen=True, slots=True)
class TraceWindow(Row):
    """One window: ``end_ns`` is the moment of the snapshot if it was open then.

    ``first_step`` is the number, from 0, of the step under way when it began;
    ``wall_ns`` the wall clock at that moment, since 1970, or 0 if it is not known.
    """

    start_ns: Count
    end_ns: Count
    first_step: Count
    wall_ns: Count


@dataclass(frozen=True, slots=True)
class TraceThread(Row):
    """A thread: ``native`` is the kernel's id for it; 0: not known."""

    ident: Unsigned
    native: Unsigned
    name: str


@dataclass(frozen=True, slots=True)
class EventTable(Table):
    """Sections and functions: what is open at a window's edge is cut there."""

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


#: As in :mod:`fastprof.snapshot.gpu`; what is no kernel of a known name.
WHATS = ("htod", "dtoh", "dtod", "ptop", "htoh", "copy", "memset", "kernel")


@dataclass(frozen=True, slots=True)
class GpuTable(Table):
    """What the device did.

    ``what`` is a row of the snapshot's kernels, or ``-1 - i`` for ``WHATS[i]``.  ``x``,
    ``y`` and ``z`` are a kernel's grid (0 for others), ``bytes`` what was copied or set.
    ``launch`` is a row of :class:`CallTable`, or -1 if its launch is not known.
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


#: What a call to CUDA does, as far as it is told apart.
CALLS = ("launch", "graph", "sync")


@dataclass(frozen=True, slots=True)
class CallTable(Table):
    """Calls to CUDA: ``kind`` is a row of ``CALLS``; ``thread`` is -1 if not known.

    ``ns`` is how long the host was in the call, 0 if that is not known.
    """

    kind: tuple[Annotated[int, Integer(0, len(CALLS) - 1)], ...] = ()
    thread: tuple[Annotated[int, Index("trace.threads", -1)], ...] = ()
    start_ns: tuple[_Time, ...] = ()
    ns: tuple[_Time, ...] = ()
    correlation: tuple[_Small, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceSnapshot(Record):
    """The windows of a run.

    Of ``kept`` events the ``lost`` oldest made room for newer ones, so the trace is whole
    only after ``lost_until_ns``.  ``brief`` calls took less than ``min_ns`` and are not
    in it.  ``gpu_lost`` records of the device made room for newer ones.
    """

    min_ns: Count
    max_events: Count
    windows: Annotated[tuple[TraceWindow, ...], AtMost(MAX_WINDOWS, "windows")] = ()
    threads: Annotated[tuple[TraceThread, ...], sized("trace.threads")] = ()
    events: Later[EventTable] = EventTable()
    steps: Later[StepTable] = StepTable()
    gpu: Later[GpuTable] = GpuTable()
    calls: Later[CallTable] = CallTable()
    kept: Later[Count] = 0
    brief: Later[Count] = 0
    lost: Later[Count] = 0
    lost_until_ns: Later[Count] = 0
    no_memory: Later[Count] = 0
    gpu_lost: Later[Count] = 0
    gpu_lost_until_ns: Later[Count] = 0

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
                    f"{lost} earlier {what} made room for later ones (max_events of the option "
                    f"trace is {self.max_events})."
                )
        if len(self.windows) >= MAX_WINDOWS:
            notes.append(
                f"The trace has the last {MAX_WINDOWS} windows; what was in earlier ones is not "
                "in it."
            )
        if self.no_memory:
            notes.append(f"Events that are not in the trace for want of memory: {self.no_memory}.")
        return tuple(notes)


_NUMBERS = (
    "min_ns",
    "max_events",
    "kept",
    "brief",
    "lost",
    "lost_until_ns",
    "no_memory",
    "gpu_lost",
    "gpu_lost_until_ns",
)


def trace_from_export(
    data: Mapping[str, Any], names: Mapping[int, str], now_ns: int
) -> dict[str, Any]:
    """Return a recorder's trace in the layout of a saved run.

    Args:
        data: ``Recorder.export(trace=True)["trace"]``.
        names: names of threads by their ident.
        now_ns: the end of a window that is still open.
    """
    serials = {row[0]: i for i, row in enumerate(data["threads"])}
    threads = [[ident, native, names.get(ident, "")] for _, ident, native in data["threads"]]

    def index(serial: int) -> int:
        # The records of threads beyond a limit are gone, their events are not.
        if serial not in serials:
            serials[serial] = len(threads)
            threads.append([0, 0, f"ended thread {serial}"])
        return serials[serial]

    def spans(columns: Sequence[Sequence[int]], first: str) -> dict[str, list[int]]:
        what, thread, start, end = columns
        return {
            first: list(what),
            "thread": [index(serial) for serial in thread],
            "start_ns": list(start),
            "ns": [b - a for a, b in zip(start, end, strict=True)],
        }

    gpu = data.get("gpu") or {"records": (), "calls": ()}
    return {
        **{name: data.get(name, 0) for name in _NUMBERS},
        "no_memory": data["no_memory"] + gpu.get("no_memory", 0),
        "gpu_lost": gpu.get("lost", 0),
        "gpu_lost_until_ns": gpu.get("lost_until_ns", 0),
        **_gpu_from_export(gpu["records"], gpu["calls"], index),
        "windows": [
            [start, max(start, now_ns) if end is None else end, step, wall]
            for start, end, step, wall in data["windows"]
        ],
        "events": spans(data["events"], "key"),
        "steps": spans(data["steps"], "number"),
        "threads": threads,
    }


def _outermost(calls: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Return calls without those to the driver that a call to the runtime made."""
    out: list[Sequence[int]] = []
    around: dict[int, int] = {}
    for call in sorted(calls, key=lambda c: (c[2], -c[3])):
        _kind, _thread, _start, until, correlation = call
        # Both have the same id; 0 is none.
        if not correlation or around.get(correlation, -1) < until:
            around[correlation] = until
            out.append(call)
    return out


def _gpu_from_export(
    records: Sequence[Sequence[int]],
    calls: Sequence[Sequence[int]],
    index: Callable[[int], int],
) -> dict[str, Any]:
    calls = _outermost(calls)
    rows: dict[int, list[int]] = {}
    for i, call in enumerate(calls):
        if CALLS[call[0]] != "sync":
            rows.setdefault(call[4], []).append(i)

    def launch(correlation: int, start: int) -> int:
        # Ids begin anew when CUPTI was let go of: it is the last call before.
        before = [i for i in rows.get(correlation, ()) if calls[i][2] <= start + _CLOCKS_NS]
        return before[-1] if before else -1

    what, device, stream, start, end, size, x, y, z, corr = (
        zip(*records, strict=True) if records else [()] * 10
    )
    kind, thread, since, until, ids = zip(*calls, strict=True) if calls else [()] * 5
    return {
        "gpu": {
            "what": what,
            "device": device,
            "stream": stream,
            "start_ns": start,
            "ns": [max(0, b - a) for a, b in zip(start, end, strict=True)],
            "bytes": size,
            "x": x,
            "y": y,
            "z": z,
            "launch": [launch(c, at) for c, at in zip(corr, start, strict=True)],
        },
        "calls": {
            "kind": kind,
            "thread": [index(serial) if serial else -1 for serial in thread],
            "start_ns": since,
            "ns": [max(0, b - a) for a, b in zip(since, until, strict=True)],
            "correlation": ids,
        },
    }
