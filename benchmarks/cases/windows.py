"""Whole programs alone and under the default ``fastprof run``: what it costs, and what it says.

CPU seconds, so that other work on the machine disturbs less.  Of each candidate the fastest
run counts.  What the report states per step is the difference of two runs of different
length: what is done once (imports, the window) cancels.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import CaseResult, Options, Table

from cases.windows_programs import PROGRAMS

_SCRIPT = Path(__file__).with_name("windows_programs.py")


def _run(command: list[str]) -> tuple[float, float, str]:
    """Wall and CPU seconds of a process, and what it printed."""
    before, wall = os.times(), -os.times().elapsed
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system
    return wall + after.elapsed, cpu - before.children_system, done.stdout


def _step(output: str) -> float:
    line = next(line for line in output.splitlines() if line.startswith("CPU "))
    return float(line.split()[1])


def _stated(folder: str) -> float:
    """Seconds that the saved run says it cost."""
    import fastprof

    report = fastprof.load(str(Path(folder) / "train_profile.fprof"))
    assert not isinstance(report, list)
    return (report.overhead.estimated_ms or 0.0) / 1e3


def run(options: Options) -> CaseResult:
    if importlib.util.find_spec("torch") is None:
        return CaseResult("windows", (Table("Whole programs: torch is not installed", (), ()),))
    rounds = options.round_count(3, 1)
    rows = []
    for name, (_, full) in PROGRAMS.items():
        steps = max(16, full // options.pick(1, 8))
        best: dict[str, list[float]] = {}
        stated: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            profiled = [sys.executable, "-m", "fastprof", "run", "-o", folder]
            for _ in range(rounds):
                short = 0.0
                for kind, command, count in (
                    ("alone", [sys.executable], steps),
                    ("short", profiled, steps // 2),
                    ("run", profiled, steps),
                ):
                    wall, cpu, output = _run([*command, str(_SCRIPT), name, str(count)])
                    found = [wall, cpu, _step(output)]
                    seen = best.setdefault(kind, [wall, cpu, 1e9])
                    best[kind] = [min(a, b) for a, b in zip(seen, found, strict=True)]
                    if kind == "short":
                        short = _stated(folder)
                    elif kind == "run":
                        stated.append((_stated(folder) - short) / (steps - steps // 2))
        alone, ours = best["alone"], best["run"]
        real = ours[2] - alone[2]
        claimed = sorted(stated)[len(stated) // 2]
        rows.append(
            (
                name,
                f"{alone[2] * 1e3:.2f}",
                f"{alone[1]:.1f}",
                f"{ours[1]:.1f}",
                f"{ours[1] - 1.1 * alone[1]:+.1f}",
                f"{ours[2] / alone[2]:.2f}",
                f"{real * 1e6:.0f}",
                f"{claimed * 1e6:.0f}",
            )
        )
    table = Table(
        "Whole programs under the default `fastprof run`, CPU time",
        (
            "program",
            "ms per step",
            "alone s",
            "run s",
            "run - 1.1 x alone s",
            "step ratio",
            "us per step measured",
            "stated",
        ),
        tuple(rows),
        ("goal: run - 1.1 x alone at most 2 s; stated within a fifth of measured",),
    )
    return CaseResult("windows", (table,), {"rows": [list(row) for row in rows]})
