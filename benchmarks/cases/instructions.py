"""Counts instructions per call with valgrind; no other load disturbs this figure.

Each candidate runs twice with different repeat counts; the difference is the cost of the additional
calls, without the start of the interpreter.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import Any

import fastprof_adapter
import harness
import peers
from harness import CaseResult, Cell, Options, Table

_WORKLOADS = {"calls": 20_000, "ccalls": 10_000, "mod": 200}
_SECTIONS = {"floor": "empty C context manager", "off": "fastprof, off", "on": "fastprof, on"}


def _count(arguments: list[str]) -> tuple[int, int] | None:
    """Return (instructions, calls) of one run; None if the candidate is missing."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command = [*valgrind, *harness.child_command(*arguments)]
    # Otherwise hashes of strings, and with them the work at the start, differ between processes.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "missing" in result:
        return None
    match = re.search(r"Collected : (\d+)", done.stderr)
    if match is None:
        raise RuntimeError("valgrind did not say how many instructions it counted")
    return int(match.group(1)), result["calls"]


def _per_call(program: str, name: str, rest: list[str], count: int) -> float | None:
    few = _count([program, name, *rest, str(count)])
    many = _count([program, name, *rest, str(3 * count)])
    if few is None or many is None:
        return None
    return (many[0] - few[0]) / (many[1] - few[1])


def run(options: Options) -> CaseResult:
    """Count for the floor, fastprof and cProfile, and for sections."""
    why = "" if shutil.which("valgrind") else "valgrind is not installed"
    why = why or fastprof_adapter.missing()
    if why:
        table = Table("instructions", ("what", "per call"), (("fastprof", None),), (why,))
        return CaseResult("instructions", (table,), {"missing": why})
    names: tuple[str, ...] = (peers.NONE, peers.EMPTY, peers.CLOCKED, "fastprof", peers.CPROFILE)
    # Valgrind is slow to start, so a quick run omits most of the runs.
    sizes, sections = _WORKLOADS, _SECTIONS
    if options.quick:
        names = (peers.NONE, peers.CLOCKED, "fastprof")
        sizes, sections = {"calls": _WORKLOADS["calls"]}, {}
    data: dict[str, dict[str, float | None]] = {}
    for workload, count in sizes.items():
        size = max(8, count // options.pick(1, 10))
        data[workload] = {name: _per_call("calls", name, [workload], size) for name in names}
    size = 20_000
    data["sections"] = {
        title: _per_call("section_uses", name, [], size) for name, title in sections.items()
    }
    rows: list[tuple[Cell, ...]] = []
    for workload in sizes:
        base = data[workload][peers.NONE]
        clocked = data[workload][peers.CLOCKED]
        for name in names[1:]:
            value = data[workload][name]
            if value is None or base is None or clocked is None:
                rows.append((f"{workload}: {name}", None, None))
            else:
                share = harness.ratio(value - base, clocked - base)
                rows.append((f"{workload}: {name}", value - base, share))
    floor = data["sections"].get(_SECTIONS["floor"])
    rows += [
        (f"sections: {title}", value, harness.ratio(value, floor))
        for title, value in data["sections"].items()
    ]
    table = Table(
        "instructions: per call, unprofiled subtracted; per section, loop included",
        ("what", "instructions", "of clock reads / of the C one"),
        tuple(rows),
    )
    return CaseResult("instructions", (table,), {"per_call": data})
