"""Measures the CPU time of a run, all threads and worker processes together.

If a training thread is ready to run and has no CPU, this shows whether the program itself uses the
CPUs, with its threads and worker processes.
"""

import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from fastprof.guards import own_errors


@dataclass(slots=True)
class CpuUse:
    """CPU time between two moments."""

    _before: int | None = None
    _after: int | None = None

    def begin(self) -> None:
        """Start measuring."""
        self._before = used_ns()

    def end(self) -> None:
        """Stop measuring."""
        self._after = used_ns()

    def to_meta(self) -> dict[str, int]:
        """Return the fact ``process_cpu_ns``, so far or of the whole run; empty if unknown."""
        after = used_ns() if self._after is None else self._after
        if self._before is None or after is None:
            return {}
        # A worker killed by another process takes the record of its CPU time with it.
        return {"process_cpu_ns": max(0, after - self._before)}


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
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except own_errors(OSError):  # ended, or another system
        return 0
    return sum(map(int, fields[11:15])) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
