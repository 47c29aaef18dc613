"""Measures the cost of a recorded call and section while 1 to 8 threads make them at once.

The figure is CPU time per call: threads that wait for each other, or whose writes take a cache line
from each other, cost more of it.  Run it on a free-threaded build and on the same version with the
GIL; the ratio of the rows for one thread is what the free-threaded build costs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import fastprof_adapter
import harness
from harness import CaseResult, Cell, Options, Table

THREADS = (1, 2, 4, 8)

#: The cost of a call with 8 threads may be this many times the cost with one.
TARGET_FLAT = 1.1


def _leaf() -> None:
    pass


def calls(n: int) -> None:
    for _ in range(n):
        _leaf()


def c_calls(n: int) -> None:
    text = "abc"
    for _ in range(n):
        len(text)


def sections(n: int) -> None:
    section = fastprof_adapter.profile_section()
    for _ in range(n):
        with section("outer"):
            pass


WORKLOADS: tuple[tuple[str, Callable[[int], None]], ...] = (
    ("a Python call", calls),
    ("a C call", c_calls),
    ("a section", sections),
)


def _at_once(count: int, work: Callable[[int], None], n: int) -> float:
    """Return CPU seconds per call: the best of the parts of the best thread."""
    ready = threading.Barrier(count)
    best = [1e9] * count

    def run(index: int) -> None:
        work(max(1, n // 4))  # the thread's first events, and the specialising of its code
        ready.wait()
        for _ in range(4):
            begin = time.thread_time()
            work(n)
            best[index] = min(best[index], (time.thread_time() - begin) / n)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(best) / count


def run(options: Options) -> CaseResult:
    """Measure each workload with and without recording, in turns; one table."""
    rounds = options.round_count(9, 2)
    n = options.pick(40_000, 5_000)
    lock = "with" if getattr(sys, "_is_gil_enabled", lambda: True)() else "without"
    rows: list[tuple[Cell, ...]] = []
    data: dict[str, dict[str, float]] = {}
    for name, work in WORKLOADS:
        off: dict[int, float] = {}
        on: dict[int, float] = {}
        harness.settle()
        for _ in range(rounds):
            for count in THREADS:
                off[count] = min(off.get(count, 1e9), _at_once(count, work, n))
                with fastprof_adapter.stepping(0):
                    on[count] = min(on.get(count, 1e9), _at_once(count, work, n))
        cost = {count: (on[count] - off[count]) * 1e9 for count in THREADS}
        data[name] = {str(count): value for count, value in cost.items()}
        rows.append((name, *cost.values(), harness.ratio(cost[THREADS[-1]], cost[1])))
    table = Table(
        f"CPU time of recording it, in ns, by number of threads, {lock} the GIL",
        ("", *(f"{count}" for count in THREADS), "8 / 1"),
        tuple(rows),
        (f"goal: 8 / 1 is at most {TARGET_FLAT}",),
    )
    return CaseResult("threads", (table,), data)
