"""Single events of a trace, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from fastprof.snapshot import Snapshot
from fastprof.snapshot_trace import TraceSnapshot

#: Track of the steps and of marks; no thread has that number.
STEPS_TID = 0

#: Devices are processes of these numbers, as with torch.profiler.
MAX_DEVICES = 64

#: Where JavaScript has no exact integers any more.
_EXACT = 2**53


def us(ns: int) -> str:
    """Return nanoseconds as microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03}"


@dataclass(frozen=True, slots=True)
class Process:
    """The numbers under which this process and its threads appear."""

    pid: int
    tids: tuple[int, ...]

    @staticmethod
    def of(snapshot: Snapshot, trace: TraceSnapshot) -> Process:
        """Choose numbers: the kernel's, unless two would be the same."""
        pid = snapshot.meta.get("pid")
        number = pid if type(pid) is int and pid > 0 else 1
        # In a container the process may have the number of a device.
        number = number + 1_000_000 if number < MAX_DEVICES else number
        used = {STEPS_TID}
        tids = []
        for i, thread in enumerate(trace.threads):
            tid = thread.native if 0 < thread.native < _EXACT else i + 1
            # A thread that ended may have left its number to another.
            while tid in used:
                tid += 10_000_000
            used.add(tid)
            tids.append(tid)
        return Process(number, tuple(tids))

    def tid(self, thread: int) -> int:
        """Return the number of a row of the trace's threads; -1: of an unknown one."""
        return self.tids[thread] if thread >= 0 else _EXACT - 1


def metadata(kind: str, pid: int, tid: int, **args: object) -> str:
    """What a process or thread is called and where it stands."""
    text = json.dumps(args, separators=(",", ":"))
    return f'{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"ts":0,"args":{text}}}'


def span(
    name: str, category: str, pid: int, tid: int, start_ns: int, ns: int, args: str = ""
) -> str:
    """Something with a beginning and an end; ``name`` and ``args`` are JSON already."""
    more = f',"args":{args}' if args else ""
    return (
        f'{{"ph":"X","name":{name},"cat":"{category}","pid":{pid},"tid":{tid},'
        f'"ts":{us(start_ns)},"dur":{us(ns)}{more}}}'
    )


def instant(name: str, pid: int, tid: int, at_ns: int) -> str:
    """A mark across the whole process."""
    return (
        f'{{"ph":"i","s":"p","name":{json.dumps(name)},"cat":"fastprof","pid":{pid},'
        f'"tid":{tid},"ts":{us(at_ns)}}}'
    )


def counter(name: str, pid: int, at_ns: int, values: Mapping[str, float]) -> str:
    """Values that hold from a moment on."""
    args = json.dumps(dict(values), allow_nan=False, separators=(",", ":"))
    return (
        f'{{"ph":"C","name":{json.dumps(name)},"cat":"fastprof","pid":{pid},"tid":0,'
        f'"ts":{us(at_ns)},"args":{args}}}'
    )


def arrow(begins: bool, number: int, pid: int, tid: int, at_ns: int) -> str:
    """One end of an arrow from a call to what it started, as torch.profiler has them."""
    head = '"ph":"s"' if begins else '"ph":"f","bp":"e"'
    return (
        f'{{{head},"id":{number},"name":"ac2g","cat":"ac2g","pid":{pid},"tid":{tid},'
        f'"ts":{us(at_ns)}}}'
    )
