"""Measures the CPU time of a run, all threads and worker processes together, and that of others.

If a training thread is ready to run and has no CPU, this shows whether the program itself uses the
CPUs, with its threads and worker processes, and whether a further worker has one.
"""

import os
import sys
from _io import open as open_file  # the program may replace the builtin
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fastprof.clock import time
from fastprof.guards import own_errors
from fastprof.session.part import Part
from fastprof.snapshot import Snapshot


@dataclass
class CpuUse(Part):
    """CPU time of the program, and of all programs on its CPUs, between two moments."""

    kind = "cpu"
    in_loop = True
    _before: tuple[int | None, int | None] | None = None
    _after: tuple[int | None, int | None] | None = None

    def begin(self) -> None:
        """Start measuring."""
        self._before = (used_ns(), machine_ns())

    def end(self, count: int = 0) -> None:
        """Stop measuring."""
        self._after = (used_ns(), machine_ns())

    def to_meta(self) -> dict[str, int]:
        """Return the facts, so far or of the whole run; without those that are unknown.

        ``process_cpu_ns`` is the time of the program with its workers, ``others_cpu_ns`` that of
        other programs on the CPUs that the program may use.
        """
        if self._before is None:
            return {}
        own, whole = self._before
        own_now, whole_now = self._after or (used_ns(), machine_ns())
        if own is None or own_now is None:
            return {}
        # A worker killed by another process takes the record of its CPU time with it.
        facts = {"process_cpu_ns": max(0, own_now - own)}
        if whole is not None and whole_now is not None:
            facts["others_cpu_ns"] = max(0, whole_now - whole - facts["process_cpu_ns"])
        return facts

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, meta={**snapshot.meta, **self.to_meta()})


def machine_ns(stat: str = "/proc/stat") -> int | None:
    """Return the time in which the CPUs that this process may use were not idle.

    That is the sum of all kinds of time but idle, waiting for the disk, and guests, whose time
    ``user`` contains (proc(5)); None on other systems, or if it does not list the CPUs.
    """
    try:
        allowed = {f"cpu{number}".encode() for number in os.sched_getaffinity(0)}
        with open_file(stat, "rb") as file:
            rows = [row.split() for row in file.read().splitlines() if row.startswith(b"cpu")]
        rows = [row for row in rows if row[0] in allowed]
        ticks = [sum(map(int, row[1:4])) + sum(map(int, row[6:9])) for row in rows]
        second = os.sysconf("SC_CLK_TCK")
    except own_errors():  # no such file or call, other contents
        return None
    return sum(ticks) * (1_000_000_000 // second) if len(ticks) == len(allowed) else None


def used_ns() -> int | None:
    """Return the CPU time of this process, its ended children and its worker processes."""
    try:
        ended = os.times()
        own = time.process_time_ns()
        living = sum(map(_process_ns, _workers()))
    except own_errors():  # no such clock, a set that grew meanwhile, another multiprocessing
        return None
    return own + round((ended.children_user + ended.children_system) * 1e9) + living


def _workers() -> Iterable[int]:
    """Return the processes that :mod:`multiprocessing` started here.

    Not by ``active_children()``, which reaps those that have ended: that is the program's task.
    """
    module = sys.modules.get("multiprocessing.process")
    return [pid for p in getattr(module, "_children", ()) if isinstance(pid := p.pid, int)]


def _process_ns(pid: int) -> int:
    """Return the CPU time of a process and its ended children (proc(5), fields 14 to 17)."""
    try:
        with open_file(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except own_errors(OSError):  # ended, or another system
        return 0
    return sum(map(int, fields[11:15])) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
