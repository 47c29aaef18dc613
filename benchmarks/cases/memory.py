"""Tests whether memory stays constant over sections and steps; measures it per context."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import fastprof_adapter
import harness
from harness import CaseResult, Options, Table

TARGET_BYTES_PER_CONTEXT = 100.0
TARGET_FIXED_BYTES = 1 << 20


def _child(program: str, count: int) -> dict[str, Any]:
    command = harness.child_command(program, count)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run(options: Options) -> CaseResult:
    """Run three processes one after another, and measure the growth of each while it records."""
    why = fastprof_adapter.missing()
    if not why and not sys.platform.startswith("linux"):
        why = "reads /proc: Linux only"
    if why:
        table = Table("memory", ("what", "bytes"), (("fastprof", None),), (why,))
        return CaseResult("memory", (table,), {"missing": why})
    data = {
        "sections": _child("sections", options.pick(10_000_000, 200_000)),
        "steps": _child("steps", options.pick(1_000_000, 20_000)),
        "contexts": _child("contexts", options.pick(250_000, 10_000)),
    }
    contexts = data["contexts"]
    allowed = TARGET_BYTES_PER_CONTEXT * contexts["contexts"] + TARGET_FIXED_BYTES
    rows: list[tuple[str | float | int | None, ...]] = [
        (f"{data[name]['count']:,} {name}", data[name]["grown_bytes"], data[name]["grown_blocks"])
        for name in ("sections", "steps")
    ]
    rows.append(
        (f"{contexts['contexts']:,} contexts", contexts["grown_bytes"], contexts["grown_blocks"])
    )
    table = Table(
        "memory: growth of the resident set after a warm-up, in a process of its own",
        ("what", "bytes", "Python blocks"),
        tuple(rows),
        (
            "Target: none over sections and steps.",
            f"Contexts: {contexts['bytes_per_context']:.1f} bytes each.",
            f"Target: <= {TARGET_BYTES_PER_CONTEXT:g} each and 1 MiB, here {allowed:,.0f} in all.",
        ),
    )
    return CaseResult("memory", (table,), data)
