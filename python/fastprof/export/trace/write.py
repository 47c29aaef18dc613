"""A trace in Chrome's event format, for Perfetto, chrome://tracing, HTA and others.

The format is the one in "Trace Event Format" (Google, 2016); names of categories, of steps and of
arguments are torch.profiler's, which its readers need.  Events are written one by one, so a large
trace needs no large string.

==================  ======================================================================
category            what
==================  ======================================================================
user_annotation     sections, in their thread; steps as ``ProfilerStep#N`` in a track of
                    their own, as a step may begin and end at any depth of calls
python_function     Python functions
cpu_op              C functions, which is what torch's operators are to Python
cuda_runtime        calls that gave a device work or waited for it
kernel, gpu_memcpy, what the devices did; process = device, thread = stream
gpu_memset
ac2g                arrows from a call to what it started
==================  ======================================================================

``ts`` is microseconds since the start of the recording; ``baseTimeNanoseconds`` is the start on the
wall clock.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, TextIO

from fastprof.errors import ExportError
from fastprof.export.frames import MAX_LABEL
from fastprof.export.trace.events import (
    STEPS_TID,
    Process,
    Timeline,
    counter,
    instant,
    metadata,
    span,
)
from fastprof.export.trace.gpu import GpuEvents, gpu_metadata
from fastprof.names import printable_name
from fastprof.report.model import Report
from fastprof.report.writers import compact_json
from fastprof.snapshot import Key, Snapshot
from fastprof.snapshot.memory import MemorySample
from fastprof.snapshot.trace import TraceSnapshot, TraceWindow

_CATEGORY = {"section": "user_annotation", "python": "python_function"}


def write(report: Report, stream: TextIO) -> None:
    """Write all windows of a report's trace.

    Raises:
        ExportError: the report has none.
    """
    Writer(report).write(stream, None)


def trace_of(report: Report) -> TraceSnapshot:
    """Return the trace of a report.

    Raises:
        ExportError: the report has none.
    """
    if report.has_tree and report.snapshot.trace is not None:
        return report.snapshot.trace
    raise ExportError(
        "this run has no trace: record it with fastprof.Profiler(trace=True) or "
        "with fastprof run --trace"
    )


class Writer:
    """Writes windows of one report's trace, and sorts its rows once.

    Raises:
        ExportError: the report has none.
    """

    def __init__(self, report: Report) -> None:
        self._trace, self._snapshot = trace_of(report), report.snapshot
        trace = self._trace
        self._process = Process.of(self._snapshot, trace)
        self._steps = Timeline(trace.steps.start_ns, trace.steps.ns)
        self._steps_ns = self._steps.apart((STEPS_TID,) * len(trace.steps))
        self._host = Timeline(trace.events.start_ns, trace.events.ns)
        self._host_ns = self._host.apart(trace.events.thread)
        self._gpu = GpuEvents(self._snapshot, trace, self._process)
        self._samples = _samples(self._snapshot, trace)
        self._labels: dict[int, tuple[str, str, str]] = {}

    def write(self, stream: TextIO, number: int | None, more: Iterable[str] = ()) -> None:
        """Write one window, counted from 0, or all if ``number`` is None.

        Args:
            more: further events, as JSON, to write after fastprof's.

        Raises:
            IndexError: there is no such window.
        """
        trace = self._trace
        windows = trace.windows if number is None else (trace.windows[number],)
        # With spaces: HTA searches the rank with a pattern that needs them.
        head = json.dumps(_head(self._snapshot, trace, windows), allow_nan=False)
        stream.write(head[:-1] + ', "traceEvents":[\n')
        comma = ""
        for event in chain(self._events(windows), more):
            stream.write(comma + event)
            comma = ",\n"
        stream.write("\n]}\n")

    def _events(self, windows: tuple[TraceWindow, ...]) -> Iterator[str]:
        trace, process = self._trace, self._process
        yield from _metadata(self._snapshot, trace, process)
        yield from gpu_metadata(trace, process)
        starts = [w.start_ns for w in trace.windows]
        for window in windows:
            yield from _window_marks(trace, window, process)
            yield from self._step_events(window)
            yield from self._host_events(window)
            yield from self._memory_events(window)
            following = bisect_left(starts, window.end_ns)
            last = starts[following] if following < len(starts) else None
            yield from self._gpu.between(window.start_ns, last)

    def _step_events(self, window: TraceWindow) -> Iterator[str]:
        t, pid = self._trace.steps, self._process.pid
        for i in self._steps.inside(window.start_ns, window.end_ns):
            name = compact_json(f"ProfilerStep#{t.number[i]}")
            yield span(name, "user_annotation", pid, STEPS_TID, t.start_ns[i], self._steps_ns[i])

    def _host_events(self, window: TraceWindow) -> Iterator[str]:
        t, process, labels = self._trace.events, self._process, self._labels
        for i in self._host.inside(window.start_ns, window.end_ns):
            key = t.key[i]
            if key not in labels:
                labels[key] = _label(self._snapshot.keys[key])
            name, category, args = labels[key]
            tid = process.tid(t.thread[i])
            ns = self._host_ns[i]
            yield span(name, category, process.pid, tid, t.start_ns[i], ns, args)

    def _memory_events(self, window: TraceWindow) -> Iterator[str]:
        memory = self._snapshot.memory
        for at, sample in self._samples:
            if memory is not None and window.start_ns <= at <= window.end_ns:
                values = {"allocated": sample.allocated, "reserved": sample.reserved}
                name = f"GPU {memory.device} memory (bytes)"
                yield counter(name, self._process.pid, at, values)


def _samples(snapshot: Snapshot, trace: TraceSnapshot) -> list[tuple[int, MemorySample]]:
    """Return samples of GPU memory with their times: they are taken at the ends of steps."""
    if snapshot.memory is None:
        return []
    t = trace.steps
    # A sample's step is the number of steps that had ended.
    ends = {t.number[i] + 1: t.start_ns[i] + t.ns[i] for i in range(len(t))}
    return [(ends[s.step], s) for s in snapshot.memory.samples if s.step in ends]


def base_ns(windows: Iterable[TraceWindow]) -> int:
    """Return the wall clock's time at ``ts`` 0; 0 if it is unknown."""
    return next((w.wall_ns - w.start_ns for w in windows if w.wall_ns > w.start_ns), 0)


def _head(
    snapshot: Snapshot, trace: TraceSnapshot, windows: tuple[TraceWindow, ...]
) -> dict[str, Any]:
    meta = snapshot.meta
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base_ns(windows),
        "traceName": "fastprof",
        "distributedInfo": {"rank": meta.get("rank", 0), "world_size": meta.get("world_size", 1)},
        "deviceProperties": [
            {
                "id": d.index,
                "name": printable_name(d.name),
                "totalGlobalMem": d.memory_bytes,
                "computeMajor": d.capability[0],
                "computeMinor": d.capability[1],
                "numSms": d.multiprocessors,
                "warpSize": d.warp_size,
            }
            for d in (snapshot.gpu.devices if snapshot.gpu is not None else ())
        ],
        "fastprof": {
            "windows": [[w.start_ns, w.end_ns, w.first_step] for w in windows],
            "notes": list(trace.notes()),
        },
    }


def _metadata(snapshot: Snapshot, trace: TraceSnapshot, process: Process) -> Iterator[str]:
    rank = snapshot.meta.get("rank", 0)
    yield metadata("process_name", process.pid, 0, name=f"python (rank {rank})")
    yield metadata("process_labels", process.pid, 0, labels="CPU")
    yield metadata("process_sort_index", process.pid, 0, sort_index=0)
    yield metadata("thread_name", process.pid, STEPS_TID, name="steps")
    yield metadata("thread_sort_index", process.pid, STEPS_TID, sort_index=-1)
    for i, thread in enumerate(trace.threads):
        name = printable_name(thread.name, MAX_LABEL) or f"thread {process.tid(i)}"
        yield metadata("thread_name", process.pid, process.tid(i), name=name)
        yield metadata("thread_sort_index", process.pid, process.tid(i), sort_index=i + 1)


def _window_marks(trace: TraceSnapshot, window: TraceWindow, process: Process) -> Iterator[str]:
    yield instant("trace begins", process.pid, STEPS_TID, window.start_ns)
    for until, what in (
        (trace.lost_until_ns if trace.lost else 0, "events"),
        (trace.gpu_lost_until_ns if trace.gpu_lost else 0, "GPU records"),
    ):
        if window.start_ns < until:
            at = min(until, window.end_ns)
            yield instant(f"{what} before this are incomplete", process.pid, STEPS_TID, at)
    yield instant("trace ends", process.pid, STEPS_TID, window.end_ns)


def _label(key: Key) -> tuple[str, str, str]:
    """Return the name, the category and the arguments of a key's events, as JSON."""
    name = compact_json(printable_name(key.qualname or key.name, MAX_LABEL))
    args = ""
    if key.kind == "python":
        args = compact_json({"source": f"{printable_name(key.file, MAX_LABEL)}:{key.line}"})
    return name, _CATEGORY.get(key.kind, "cpu_op"), args
