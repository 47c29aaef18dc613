"""Single events of a trace, as JSON."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastprof.report.writers import compact_json
from fastprof.snapshot import Snapshot
from fastprof.snapshot.trace import TraceSnapshot

#: Tracks of the steps and marks, and of unknown threads.  Not 0, which readers take for the idle
#: thread.
STEPS_TID, UNKNOWN_TID = 1, 2

#: Devices are processes with these numbers, as in torch.profiler.
MAX_DEVICES = 64

#: Threads without a number of the kernel's, and those whose number an earlier thread had, get
#: numbers from here.  Perfetto keeps 32 bits, Linux counts to 2**22.
_FIRST_TID, _NEXT_TID, _MAX_TID = 1000, 10_000_000, 2**31


def us(ns: int) -> str:
    """Return nanoseconds as microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03}"


@dataclass(frozen=True, slots=True)
class Process:
    """The numbers of this process and its threads in the trace."""

    pid: int
    tids: tuple[int, ...]

    @staticmethod
    def of(snapshot: Snapshot, trace: TraceSnapshot) -> "Process":
        """Choose numbers: the kernel's, unless two would be the same."""
        pid = snapshot.meta.get("pid")
        number = pid if type(pid) is int and pid > 0 else 1
        # In a container the process may have the number of a device.
        number = number + 1_000_000 if number < MAX_DEVICES else number
        used = {STEPS_TID, UNKNOWN_TID}
        tids = []
        for i, thread in enumerate(trace.threads):
            tid = thread.native if 0 < thread.native < _MAX_TID else _FIRST_TID + i
            # The system may reuse the number of a thread that ended.
            if tid in used:
                tid = _NEXT_TID + i
            while tid in used:
                tid += len(trace.threads)
            used.add(tid)
            tids.append(tid)
        return Process(number, tuple(tids))

    def tid(self, thread: int) -> int:
        """Return the number of a row of the trace's threads; -1: an unknown thread."""
        return self.tids[thread] if thread >= 0 else UNKNOWN_TID


class Timeline:
    """Rows of a table in order of time, with fast search for any number of windows.

    Args:
        ns: the length of each row.  Of two rows with the same start, the enclosing one comes first;
            of two equal ones, the later one, which ended later.
    """

    def __init__(self, starts: Sequence[int], ns: Sequence[int] = ()) -> None:
        self._ns = ns
        rows = range(len(starts))
        if ns:
            self._rows = sorted(rows, key=lambda i: (starts[i], -ns[i], -i))
        else:
            self._rows = sorted(rows, key=starts.__getitem__)
        self._starts = [starts[i] for i in self._rows]

    def inside(self, first: int, last: int) -> list[int]:
        """Return the rows that begin at ``first`` or later and end at ``last`` or before."""
        low, high = bisect_left(self._starts, first), bisect_right(self._starts, last)
        return [
            row
            for row, start in zip(self._rows[low:high], self._starts[low:high], strict=True)
            if start + self._ns[row] <= last
        ]

    def apart(self, tracks: Sequence[object]) -> list[int]:
        """Return the lengths to write for the rows, so that no two moments are equal.

        speedscope adds ``ts`` and ``dur`` as floats.  A row that ends with the begin of the next,
        or with the end of the enclosing one, may then end after it, and speedscope takes the second
        of two steps for a part of the first.  The first is therefore a nanosecond shorter, far more
        than the error of such a sum.
        """
        begins: dict[object, set[int]] = {}
        for row, start in zip(self._rows, self._starts, strict=True):
            begins.setdefault(tracks[row], set()).add(start)
        around: dict[object, list[tuple[int, int]]] = {track: [] for track in begins}
        out = list(self._ns)
        for row, start in zip(self._rows, self._starts, strict=True):
            track, end = tracks[row], start + out[row]
            holders = around[track]  # their ends, and the ends as written
            while holders and holders[-1][0] <= start:
                holders.pop()
            said = end - (end in begins[track])
            if holders and end <= holders[-1][0]:
                said = min(said, holders[-1][1] - 1)
            out[row] = max(said - start, 0)
            holders.append((end, start + out[row]))
        return out

    def between(self, first: int, last: int | None) -> list[int]:
        """Return the rows that begin at ``first`` or later, and before ``last``."""
        low = bisect_left(self._starts, first)
        return self._rows[low : None if last is None else bisect_left(self._starts, last)]


def metadata(kind: str, pid: int, tid: int, **args: object) -> str:
    """Return the name or the position of a process or thread."""
    text = json.dumps(args, separators=(",", ":"))
    return f'{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"ts":0,"args":{text}}}'


def span(
    name: str, category: str, pid: int, tid: int, start_ns: int, ns: int, args: str = ""
) -> str:
    """Return an event with a begin and an end; ``name`` and ``args`` are JSON already."""
    more = f',"args":{args}' if args else ""
    return (
        f'{{"ph":"X","name":{name},"cat":"{category}","pid":{pid},"tid":{tid},'
        f'"ts":{us(start_ns)},"dur":{us(ns)}{more}}}'
    )


def instant(name: str, pid: int, tid: int, at_ns: int) -> str:
    """Return a mark across the whole process."""
    return (
        f'{{"ph":"i","s":"p","name":{json.dumps(name)},"cat":"fastprof","pid":{pid},'
        f'"tid":{tid},"ts":{us(at_ns)}}}'
    )


def counter(name: str, pid: int, at_ns: int, values: Mapping[str, float]) -> str:
    """Return values that hold from a moment on."""
    args = compact_json(dict(values))
    return (
        f'{{"ph":"C","name":{json.dumps(name)},"cat":"fastprof","pid":{pid},"tid":0,'
        f'"ts":{us(at_ns)},"args":{args}}}'
    )


def arrow(begins: bool, number: int, pid: int, tid: int, at_ns: int) -> str:
    """Return one end of an arrow from a call to its work, as in torch.profiler."""
    head = '"ph":"s"' if begins else '"ph":"f","bp":"e"'
    return (
        f'{{{head},"id":{number},"name":"ac2g","cat":"ac2g","pid":{pid},"tid":{tid},'
        f'"ts":{us(at_ns)}}}'
    )
