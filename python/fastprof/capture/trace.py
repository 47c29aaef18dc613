"""Converts a recorder's trace to the layout of :mod:`fastprof.snapshot.trace`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastprof.snapshot.trace import CALLS

#: The device's clock may seem to be ahead of ours by this much.
_CLOCKS_NS = 1_000_000

_NUMBERS = ("min_ns", "max_events", "kept", "brief", "lost", "lost_until_ns", "no_memory")


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
        # Records of threads beyond a limit are gone, but their events remain.
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
    """Return the calls, except driver calls made by a call to the runtime."""
    out: list[Sequence[int]] = []
    around: dict[int, int] = {}
    for call in sorted(calls, key=lambda c: (c[2], -c[3])):
        _kind, _thread, _start, until, correlation = call
        # Both have the same id; 0 means no id.
        if not correlation or around.get(correlation, -1) < until:
            around[correlation] = until
            out.append(call)
    return out


def _gpu_from_export(
    records: Sequence[Sequence[int]], calls: Sequence[Sequence[int]], index: Callable[[int], int]
) -> dict[str, Any]:
    calls = _outermost(calls)
    rows: dict[int, list[int]] = {}
    for i, call in enumerate(calls):
        if CALLS[call[0]] != "sync":
            rows.setdefault(call[4], []).append(i)

    def launch(correlation: int, start: int) -> int:
        # Ids restart when CUPTI was released: the last earlier call is the right one.
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
