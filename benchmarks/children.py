"""Programs that need a separate process; each prints one JSON object."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import baseline
import fastprof_adapter
import peers
import truth_measure
import workloads
from harness import Candidate


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _measured(run: Callable[[int], object], warm_up: int, count: int) -> dict[str, Any]:
    run(warm_up)
    gc.collect()
    resident, blocks = _resident_bytes(), sys.getallocatedblocks()
    run(count)
    gc.collect()
    return {
        "count": count,
        "grown_bytes": _resident_bytes() - resident,
        "grown_blocks": sys.getallocatedblocks() - blocks,
    }


def sections(count: int) -> dict[str, Any]:
    """Return the growth of memory over ``count`` uses of four sections."""
    section = fastprof_adapter.profile_section()

    def run(n: int) -> None:
        for _ in range(n // 4):
            with section("data"):
                pass
            with section("forward"):
                pass
            with section("backward"):
                pass
            with section("optimizer"):
                pass

    with fastprof_adapter.sections_on():
        return _measured(run, 100_000, count)


def steps(count: int) -> dict[str, Any]:
    """Return the growth of memory over ``count`` steps of two sections each."""
    section = fastprof_adapter.profile_section()
    with fastprof_adapter.sections_on() as profiler:

        def run(n: int) -> None:
            for _ in range(n):
                with section("forward"):
                    pass
                with section("backward"):
                    pass
                profiler.step()

        return _measured(run, 100_000, count)


def contexts(count: int) -> dict[str, Any]:
    """Return the memory of ``count`` distinct contexts: every function calls every function."""
    side = round(count**0.5)
    source = "def g{0}(fs):\n    for f in fs:\n        f(0)\n"
    namespace: dict[str, Any] = {}
    exec("".join(source.format(i) for i in range(side)), namespace)
    callers = [namespace[f"g{i}"] for i in range(side)]
    callees = workloads.distinct_functions(side)

    def run(n: int) -> None:
        for caller in callers[:n]:
            caller(callees)

    run(side)
    candidate = fastprof_adapter.function_candidate()
    candidate.start()
    try:
        result = _measured(run, 2, side)
    finally:
        candidate.stop()
    made = (side - 2) * (len(callees) + 1)
    return {**result, "contexts": made, "bytes_per_context": result["grown_bytes"] / made}


def calls(name: str, workload: str, count: int) -> dict[str, Any]:
    """Run a workload under one candidate: valgrind counts the instructions from outside."""
    chosen = {w.name: w for w in workloads.function_workloads()}[workload]
    everyone: list[Candidate] = [
        *peers.floor(),
        fastprof_adapter.function_candidate(),
        *(c for c in peers.profilers() if c.name == name),
    ]
    candidate = next(c for c in everyone if c.name == name)
    if candidate.missing:
        return {"missing": candidate.missing}
    candidate.start()
    try:
        chosen.run(count)
    finally:
        candidate.stop()
    return {"calls": chosen.calls(count)}


def section_uses(name: str, count: int) -> dict[str, Any]:
    """Use sections: the empty C one (``floor``), fastprof's ``on`` or ``off``."""
    if name == "floor":
        native = baseline.load()
        if isinstance(native, str):
            return {"missing": native}
        factory = native.empty_section
    else:
        factory = fastprof_adapter.profile_section()

    def run(n: int) -> None:
        for _ in range(n):
            with factory("forward"):
                pass

    if name == "on":
        with fastprof_adapter.sections_on():
            run(count)
    else:
        run(count)
    return {"calls": count}


def main(argv: list[str]) -> int:
    program, arguments = argv[0], argv[1:]
    if program == "calls":
        result = calls(arguments[0], arguments[1], int(arguments[2]))
    elif program == "section_uses":
        result = section_uses(arguments[0], int(arguments[1]))
    elif program == "truth":
        result = truth_measure.measure(int(arguments[0]), int(arguments[1]))
    else:
        result = {"sections": sections, "steps": steps, "contexts": contexts}[program](
            int(arguments[0])
        )
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
