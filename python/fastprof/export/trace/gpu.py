"""The devices' part of a trace: calls to CUDA, the work that they launched, the devices' load."""

import json
from collections.abc import Iterator
from typing import Any

from fastprof.export.frames import MAX_LABEL
from fastprof.export.trace.events import (
    MAX_DEVICES,
    Process,
    Timeline,
    arrow,
    counter,
    metadata,
    span,
)
from fastprof.names import printable_name
from fastprof.snapshot import Snapshot
from fastprof.snapshot.trace import CALLS, WHATS, GpuTable, TraceSnapshot

#: Points of the counter of busy time in a window.
_BUSY_POINTS = 1000
_BUSY_FINEST_NS = 100_000

_COPY_NAMES = {
    "htod": "Memcpy HtoD",
    "dtoh": "Memcpy DtoH",
    "dtod": "Memcpy DtoD",
    "ptop": "Memcpy PtoP",
    "htoh": "Memcpy HtoH",
    "copy": "Memcpy",
}

#: Names of calls that started a kernel, a copy or a memset, or were of that kind.
_CALL_NAMES = {
    "kernel": "cudaLaunchKernel",
    "gpu_memcpy": "cudaMemcpyAsync",
    "gpu_memset": "cudaMemsetAsync",
    "graph": "cudaGraphLaunch",
    "sync": "cudaSynchronize",
}


def gpu_metadata(trace: TraceSnapshot, process: Process) -> Iterator[str]:
    """Name the devices and streams."""
    streams = sorted(set(zip(trace.gpu.device, trace.gpu.stream, strict=True)))
    for device in sorted({device for device, _ in streams}):
        pid = _pid(device)
        yield metadata("process_name", pid, 0, name="python")
        yield metadata("process_labels", pid, 0, labels=f"GPU {device}")
        yield metadata("process_sort_index", pid, 0, sort_index=5_000_000 + device)
    for device, stream in streams:
        yield metadata("thread_name", _pid(device), stream, name=f"stream {stream}")
        yield metadata("thread_sort_index", _pid(device), stream, sort_index=stream)
    if -1 in trace.calls.thread:
        yield metadata("thread_name", process.pid, process.tid(-1), name="threads not recorded")


def _pid(device: int) -> int:
    return device if device < MAX_DEVICES else 5_000_000 + device


class GpuEvents:
    """Calls and activities, window by window."""

    def __init__(self, snapshot: Snapshot, trace: TraceSnapshot, process: Process) -> None:
        self._snapshot, self._trace, self._process = snapshot, trace, process
        t, calls = trace.gpu, trace.calls
        self._categories = {
            launch: _category(t.what[i]) for i, launch in enumerate(t.launch) if launch >= 0
        }
        self._ns = Timeline(t.start_ns, t.ns).apart(list(zip(t.device, t.stream, strict=True)))
        self._calls = Timeline(calls.start_ns)
        # Work belongs to the window in which it was launched.
        self._work = Timeline(
            [
                calls.start_ns[launch] if launch >= 0 else start
                for start, launch in zip(t.start_ns, t.launch, strict=True)
            ]
        )

    def between(self, first: int, last: int | None) -> Iterator[str]:
        """Yield calls and launches from ``first`` on, and before ``last``."""
        trace, process = self._trace, self._process
        for i in self._calls.between(first, last):
            yield _call(trace, i, self._categories.get(i, "kernel"), process)
        rows = sorted(self._work.between(first, last))
        for i in rows:
            yield from _activity(self._snapshot, trace, i, self._ns[i], process)
        yield from _busy(trace.gpu, rows)


def _call(trace: TraceSnapshot, i: int, category: str, process: Process) -> str:
    t = trace.calls
    kind = CALLS[t.kind[i]]
    name = json.dumps(_CALL_NAMES[category if kind == "launch" else kind])
    args = f'{{"correlation":{t.correlation[i]}}}' if kind != "sync" else ""
    tid = process.tid(t.thread[i])
    return span(name, "cuda_runtime", process.pid, tid, t.start_ns[i], t.ns[i], args)


def _category(what: int) -> str:
    if what >= 0 or WHATS[-1 - what] == "kernel":
        return "kernel"
    return "gpu_memset" if WHATS[-1 - what] == "memset" else "gpu_memcpy"


def _activity(
    snapshot: Snapshot, trace: TraceSnapshot, i: int, ns: int, process: Process
) -> Iterator[str]:
    t, calls = trace.gpu, trace.calls
    pid, stream, launch = _pid(t.device[i]), t.stream[i], t.launch[i]
    args: dict[str, Any] = {"device": t.device[i], "stream": stream}
    if launch >= 0:
        args["correlation"] = calls.correlation[launch]
    category = _category(t.what[i])
    if category == "kernel":
        name = _kernel(snapshot, t, i, args)
    else:
        name = _COPY_NAMES.get(WHATS[-1 - t.what[i]], "Memset")
        args["bytes"] = t.bytes[i]
        if t.ns[i]:
            args["memory bandwidth (GB/s)"] = round(t.bytes[i] / t.ns[i], 3)
    text = json.dumps(args, separators=(",", ":"))
    yield span(json.dumps(name), category, pid, stream, t.start_ns[i], ns, text)
    if launch >= 0:
        host = process.tid(calls.thread[launch])
        number = calls.correlation[launch]
        yield arrow(True, number, process.pid, host, calls.start_ns[launch])
        yield arrow(False, number, pid, stream, t.start_ns[i])


def _kernel(snapshot: Snapshot, t: GpuTable, i: int, args: dict[str, Any]) -> str:
    args["grid"] = [t.x[i], t.y[i], t.z[i]]
    if t.what[i] < 0 or snapshot.gpu is None:
        return "(other kernels)"
    kernel = snapshot.gpu.kernels[t.what[i]]
    args["block"] = [kernel.block_x, kernel.block_y, kernel.block_z]
    args["registers per thread"] = kernel.registers
    args["shared memory"] = kernel.static_shared + kernel.dynamic_shared
    return printable_name(kernel.name, MAX_LABEL)


def _busy(t: GpuTable, rows: list[int]) -> Iterator[str]:
    """Yield each device's load, in per cent of slices of time."""
    by_device: dict[int, list[tuple[int, int]]] = {}
    for i in rows:
        by_device.setdefault(t.device[i], []).append((t.start_ns[i], t.start_ns[i] + t.ns[i]))
    for device, mine in sorted(by_device.items()):
        mine.sort()
        begin, end = mine[0][0], max(stop for _, stop in mine)
        width = max((end - begin) // _BUSY_POINTS, _BUSY_FINEST_NS)
        slices = [0] * ((end - begin) // width + 1)
        until = begin
        for start, stop in mine:
            start = max(start, until)
            until = max(until, stop)
            while start < stop:
                at = (start - begin) // width
                cut = min(stop, begin + (at + 1) * width)
                slices[at] += cut - start
                start = cut
        name, before = f"GPU {device} busy (%)", -1.0
        for at, ns in enumerate([*slices, 0]):
            share = round(100 * ns / width, 1)
            if share != before:
                yield counter(name, _pid(device), begin + at * width, {"busy": share})
            before = share
