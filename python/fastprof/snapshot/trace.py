"""The trace's part of a snapshot: when things began and ended, in windows of the run.

Times are nanoseconds since the recording began, of the same clock as all else.  Tables
are columns of equal length.  Events of one thread are nested: of two, either one holds the
other or they do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fastprof.snapshot.fields import (
    MAX_INT,
    as_column,
    as_dict,
    as_int,
    as_ints,
    as_list,
    as_str,
    fail,
)

#: By so much the device's clock may seem to be ahead of ours.
_CLOCKS_NS = 1_000_000

#: Windows kept by the recorder, which forgets the oldest.
MAX_WINDOWS = 1024

#: Start plus duration still fits in 64 bits.
_MAX_TIME = MAX_INT // 2


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """One window: ``end_ns`` is the moment of the snapshot if it was open then.

    ``first_step`` is the number, from 0, of the step under way when it began;
    ``wall_ns`` the wall clock at that moment, since 1970, or 0 if it is not known.
    """

    start_ns: int
    end_ns: int
    first_step: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class TraceThread:
    """A thread: ``native`` is the kernel's id for it; 0: not known."""

    ident: int
    native: int
    name: str


@dataclass(frozen=True, slots=True)
class EventTable:
    """Sections and functions: what is open at a window's edge is cut there."""

    key: tuple[int, ...] = ()
    thread: tuple[int, ...] = ()
    start_ns: tuple[int, ...] = ()
    ns: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, slots=True)
class StepTable:
    """Steps that ended in a window; ``number`` counts all steps of the run from 0."""

    number: tuple[int, ...] = ()
    thread: tuple[int, ...] = ()
    start_ns: tuple[int, ...] = ()
    ns: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True, slots=True)
class GpuTable:
    """What the device did.

    ``what`` is a row of the snapshot's kernels, or ``-1 - i`` for ``WHATS[i]``.  ``x``,
    ``y`` and ``z`` are a kernel's grid (0 for others), ``bytes`` what was copied or set.
    ``launch`` is a row of :class:`CallTable`, or -1 if its launch is not known.
    """

    what: tuple[int, ...] = ()
    device: tuple[int, ...] = ()
    stream: tuple[int, ...] = ()
    start_ns: tuple[int, ...] = ()
    ns: tuple[int, ...] = ()
    bytes: tuple[int, ...] = ()
    x: tuple[int, ...] = ()
    y: tuple[int, ...] = ()
    z: tuple[int, ...] = ()
    launch: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.what)


#: As in :mod:`fastprof.snapshot.gpu`; what is no kernel of a known name.
WHATS = ("htod", "dtoh", "dtod", "ptop", "htoh", "copy", "memset", "kernel")

#: What a call to CUDA does, as far as it is told apart.
CALLS = ("launch", "graph", "sync")


@dataclass(frozen=True, slots=True)
class CallTable:
    """Calls to CUDA: ``kind`` is a row of ``CALLS``; ``thread`` is -1 if not known.

    ``ns`` is how long the host was in the call, 0 if that is not known.
    """

    kind: tuple[int, ...] = ()
    thread: tuple[int, ...] = ()
    start_ns: tuple[int, ...] = ()
    ns: tuple[int, ...] = ()
    correlation: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, slots=True)
class TraceSnapshot:
    """The windows of a run.

    Of ``kept`` events the ``lost`` oldest made room for newer ones, so the trace is whole
    only after ``lost_until_ns``.  ``brief`` calls took less than ``min_ns`` and are not
    in it.  ``gpu_lost`` records of the device made room for newer ones.
    """

    min_ns: int
    max_events: int
    windows: tuple[TraceWindow, ...] = ()
    threads: tuple[TraceThread, ...] = ()
    events: EventTable = EventTable()
    steps: StepTable = StepTable()
    gpu: GpuTable = GpuTable()
    calls: CallTable = CallTable()
    kept: int = 0
    brief: int = 0
    lost: int = 0
    lost_until_ns: int = 0
    no_memory: int = 0
    gpu_lost: int = 0
    gpu_lost_until_ns: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers: what ``json.dumps`` accepts."""
        return {
            **{name: getattr(self, name) for name in _NUMBERS},
            "windows": [[w.start_ns, w.end_ns, w.first_step, w.wall_ns] for w in self.windows],
            "threads": [[t.ident, t.native, t.name] for t in self.threads],
            **{
                name: {f.name: list(getattr(table, f.name)) for f in fields(table)}
                for name, table in (
                    ("events", self.events),
                    ("steps", self.steps),
                    ("gpu", self.gpu),
                    ("calls", self.calls),
                )
            },
        }

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


def read_trace(value: object, n_keys: int, n_kernels: int) -> TraceSnapshot | None:
    """Check the trace of a saved run; None where there is none.

    Raises:
        SnapshotError: something in it is not what it must be.
    """
    if value is None:
        return None
    t = as_dict(value, "trace")
    threads = tuple(
        _thread(item, i) for i, item in enumerate(as_list(t.get("threads"), "trace.threads"))
    )
    events = _Columns(t, "events", "key")
    steps = _Columns(t, "steps", "number")
    calls = _calls(_Columns(t, "calls", "kind"), len(threads))
    return TraceSnapshot(
        windows=_windows(t.get("windows")),
        threads=threads,
        events=EventTable(events.index("key", n_keys), *_span(events, len(threads))),
        steps=StepTable(steps.number("number", MAX_INT), *_span(steps, len(threads))),
        gpu=_gpu(_Columns(t, "gpu", "what"), n_kernels, len(calls)),
        calls=calls,
        **{name: as_int(t.get(name, 0), f"trace.{name}") for name in _NUMBERS},
    )


class _Columns:
    """A table as it was read; without rows if there is none, as in older runs."""

    def __init__(self, trace: Mapping[str, object], table: str, first: str) -> None:
        self._where = f"trace.{table}"
        self._columns = as_dict(trace.get(table, {}), self._where)
        self._rows = len(as_list(self._columns.get(first, []), f"{self._where}.{first}"))

    def number(self, name: str, high: int = _MAX_TIME) -> tuple[int, ...]:
        """Return a column of integers from 0 to ``high``."""
        if not self._columns:
            return ()
        return as_column(self._columns, name, self._where, self._rows, high)

    def index(self, name: str, below: int) -> tuple[int, ...]:
        """Return a column of rows of a table that has ``below`` of them."""
        if not below and self._rows:
            raise fail(f"{self._where}.{name}", self._columns.get(name), "no rows")
        return self.number(name, max(below - 1, 0))

    def signed(self, name: str, low: int, high: int) -> tuple[int, ...]:
        """Return a column of integers from ``low``, which is negative."""
        if not self._columns:
            return ()
        where = f"{self._where}.{name}"
        items = as_list(self._columns.get(name), where)
        if len(items) != self._rows:
            raise fail(where, len(items), f"{self._rows} rows")
        for i, item in enumerate(items):
            if type(item) is not int or not low <= item <= high:
                raise fail(f"{where}[{i}]", item, f"an integer from {low} to {high}")
        return tuple(items)


_Span = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _span(columns: _Columns, n_threads: int) -> _Span:
    return columns.index("thread", n_threads), columns.number("start_ns"), columns.number("ns")


def _gpu(columns: _Columns, n_kernels: int, n_calls: int) -> GpuTable:
    return GpuTable(
        what=columns.signed("what", -len(WHATS), n_kernels - 1),
        device=columns.number("device", 2**32),
        stream=columns.number("stream", 2**32),
        start_ns=columns.number("start_ns"),
        ns=columns.number("ns"),
        bytes=columns.number("bytes", MAX_INT),
        x=columns.number("x", 2**32),
        y=columns.number("y", 2**32),
        z=columns.number("z", 2**32),
        launch=columns.signed("launch", -1, n_calls - 1),
    )


def _calls(columns: _Columns, n_threads: int) -> CallTable:
    return CallTable(
        kind=columns.index("kind", len(CALLS)),
        thread=columns.signed("thread", -1, n_threads - 1),
        start_ns=columns.number("start_ns"),
        ns=columns.number("ns"),
        correlation=columns.number("correlation", 2**32),
    )


def _thread(value: object, i: int) -> TraceThread:
    where = f"trace.threads[{i}]"
    items = as_list(value, where)
    if len(items) != 3:
        raise fail(where, value, "[ident, native, name]")
    return TraceThread(
        as_int(items[0], where, 0, 2**64 - 1),
        as_int(items[1], where, 0, 2**64 - 1),
        as_str(items[2], where),
    )


def _windows(value: object) -> tuple[TraceWindow, ...]:
    windows = []
    last = 0
    items = as_list(value, "trace.windows")
    if len(items) > MAX_WINDOWS:
        raise fail("trace.windows", len(items), f"at most {MAX_WINDOWS} windows")
    for i, item in enumerate(items):
        window = TraceWindow(*as_ints(item, f"trace.windows[{i}]", 4))
        if not last <= window.start_ns <= window.end_ns <= _MAX_TIME:
            raise fail(f"trace.windows[{i}]", item, "windows one after the other")
        last = window.end_ns
        windows.append(window)
    return tuple(windows)


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
