"""Puts events of torch.profiler into a trace of fastprof.

Both sides give the wall clock's time of their events: fastprof by ``TraceWindow.wall_ns``,
torch.profiler by ``baseTimeNanoseconds`` of its trace (kineto, ``ChromeTraceBaseTime``; before
torch 2.2 its times count from 1970).  The difference moves its events to fastprof's time axis.
Either side reads that clock a few times only and counts ticks of the processor in between;
docs/traces.md says how well they agree.

Its processes get separate process ids here: events of two tools in one track would overlap by the
difference of their clocks.
"""

import io
import json
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

from fastprof.errors import ExportError, LoadError, MergeError
from fastprof.export.trace import gz as trace_gz
from fastprof.export.trace import write as trace
from fastprof.fileio import atomic_write, read_bounded, resolve_output
from fastprof.read.fprof import shape, unpack
from fastprof.report.model import Report
from fastprof.report.writers import compact_json
from fastprof.snapshot.trace import TraceWindow

#: Largest trace to read, packed and unpacked.
MAX_BYTES = 2 << 30

#: A trace unpacks to at most this much more than it has bytes: those of torch, 10 to 20 times.
_RATIO, _SMALL = 40, 32 << 20
#: Memory per byte of text, by the same estimate as for a saved run; traces of torch need 7.
_MEMORY = 14

#: First process number in a merged trace: Linux counts to 2**22.
_FIRST_PID = 10_000_000

#: Added to the numbers of its arrows, which then differ from fastprof's.
_ARROWS = 1 << 40

_SUFFIXES = (".trace.json", "_trace.json", ".trace.json.gz", "_trace.json.gz")

#: A time in microseconds is below this, wherever it counts from.
_LATEST = 1e18

#: 2001, in microseconds: an earlier time does not count from 1970.
_LATE = 1e15

_PHASES = frozenset("XBEiICsftMnbe")


def merge(
    report: Report, torch_trace: str | os.PathLike[str], output: str | os.PathLike[str]
) -> None:
    """Write the trace of ``report`` together with one of torch.profiler of the same process.

    Args:
        report: a report with a trace.
        torch_trace: a file of ``export_chrome_trace``, ``.json`` or ``.json.gz``.  Only its events
            within a window of the report are written.
        output: ``.trace.json`` or ``.trace.json.gz``.

    Raises:
        ExportError: the report has no trace.
        MergeError: ``torch_trace`` is not such a file, or has no event in the report's windows.
        ExportError: ``output`` has another suffix.
        OSError: a file cannot be read or written.
    """
    name = os.fsdecode(output).lower()
    if not name.endswith(_SUFFIXES):
        raise ExportError(
            f"output is {os.fsdecode(output)!r:.200}, expected .trace.json or .trace.json.gz"
        )
    windows = trace.trace_of(report).windows
    theirs = TorchTrace(torch_trace)
    theirs.check(windows)
    events, writer = theirs.events(windows), trace.Writer(report)
    with atomic_write(resolve_output(output)) as stream:
        if name.endswith(".gz"):
            trace_gz.write_window(writer, stream, None, events)
        else:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="\n")
            try:
                writer.write(text, None, events)
            finally:
                text.detach()


class TorchTrace:
    """A file of torch.profiler.

    Raises:
        MergeError: it is not a trace of torch.profiler.
        OSError: it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._name = os.fsdecode(path)
        data = _read(path)
        base, events = data.get("baseTimeNanoseconds", 0), data.get("traceEvents")
        if type(base) is not int or not isinstance(events, list):
            raise MergeError(f"{self._name!r:.200}: not a trace of torch.profiler")
        self._base: int = base
        self._events: list[Any] = events

    def check(self, windows: Sequence[TraceWindow]) -> None:
        """Check that some of its events lie in these windows.

        Raises:
            MergeError: none does, or the file does not give its start time.
        """
        moved = self._moved(windows)
        if moved is None:
            raise MergeError("the wall clock's time of our trace is not known")
        for event in self._events:
            moved.event(event, windows)
            if moved.taken:
                return
        if moved.early:
            raise MergeError("the torch trace does not say which time its events began at")
        raise MergeError(
            f"{self._name!r:.200}: it has no events in the windows of the trace, so it belongs to "
            f"another run or to other steps"
        )

    def events(self, windows: Sequence[TraceWindow]) -> Iterator[str]:
        """Yield the events that lie in ``windows``, moved to fastprof's time, as JSON."""
        moved = self._moved(windows)
        if moved is None:
            return
        for event in self._events:
            text = moved.event(event, windows)
            if text is not None:
                yield text

    def _moved(self, windows: Sequence[TraceWindow]) -> "_Moved | None":
        ours = trace.base_ns(windows)
        return _Moved(self._base - ours, absolute=not self._base) if ours else None


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    name = os.fsdecode(path)
    try:
        content = read_bounded(path, max_bytes=MAX_BYTES)
        if content.startswith(b"\x1f\x8b"):
            most = min(MAX_BYTES, _SMALL + _RATIO * len(content))
            content = unpack(content, most)
        needs = shape(content, max(1, len(content))).memory
        if needs > _SMALL + _MEMORY * len(content):
            raise MergeError(f"{name!r:.200}: needs too much memory for its size ({needs} bytes)")
        # torch writes names unescaped: invalid UTF-8 in a name is no reason to refuse the rest.
        data = json.loads(content.decode("utf-8", "backslashreplace"))
    except LoadError as error:
        raise MergeError(f"{name!r:.200}: {str(error).removeprefix(f'{name!r}: ')}") from None
    except RecursionError as error:
        raise MergeError(f"{name!r:.200}: nested too deeply: {error}") from None
    except MergeError:
        raise
    except ValueError as error:
        raise MergeError(f"{name!r:.200}: not JSON: {error}") from None
    if not isinstance(data, dict):
        raise MergeError(f"{name!r:.200}: not a trace of torch.profiler")
    return data


class _Moved:
    """Moves events in time and to separate process ids."""

    def __init__(self, offset_ns: int, *, absolute: bool) -> None:
        self._offset = offset_ns
        self._absolute = absolute
        self._pids: dict[object, int] = {}
        #: Counts of events in the windows, and of events with an impossible time.
        self.taken = self.early = 0

    def event(self, event: object, windows: Sequence[TraceWindow]) -> str | None:
        """Return an event as JSON; None: not an event, or in no window."""
        if not isinstance(event, dict):
            return None
        phase = event.get("ph")
        if not isinstance(phase, str) or phase not in _PHASES:
            return None
        pid = event.get("pid")
        if type(pid) not in (int, str):
            return None
        out = {**event, "pid": self._pids.setdefault(pid, _FIRST_PID + len(self._pids))}
        if event["ph"] == "M":
            self._label(out)
            return _dumps(out)
        ts = event.get("ts")
        if not isinstance(ts, (int, float)) or isinstance(ts, bool) or not abs(ts) < _LATEST:
            return None
        if self._absolute and ts < _LATE:
            self.early += 1
            return None
        # In two parts: as a float, microseconds since 1970 would lose their fractions.
        whole = math.floor(ts)
        at = whole * 1000 + round((ts - whole) * 1000) + self._offset
        if not any(w.start_ns <= at <= w.end_ns for w in windows):
            return None
        self.taken += 1
        out["ts"] = at / 1000
        if event["ph"] in "sft":
            number = event.get("id")
            out["id"] = number + _ARROWS if type(number) is int else f"torch {number!s:.80}"
        return _dumps(out)

    def _label(self, event: dict[str, Any]) -> None:
        args = event.get("args")
        if event.get("name") == "process_name" and isinstance(args, dict):
            event["args"] = {"name": f"torch.profiler: {args.get('name')!s:.200}"}


def _dumps(event: dict[str, Any]) -> str | None:
    try:
        return compact_json(event)
    except (ValueError, RecursionError):  # an infinite number in its arguments, or too deep
        return None
