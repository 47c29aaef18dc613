"""Compares the real cost of functions in all steps for whole programs with the stated one.

Measures CPU seconds, because other work on the machine disturbs them less.  The fastest run of each
candidate counts.  The stated cost is that of steps alone, from two reports.  It is wall time, which
other programs lengthen; the ratio of CPU to wall time in these steps converts it to CPU time.
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


def _run(command: list[str], bytecode: str) -> tuple[float, str]:
    """Return the CPU seconds of a process, and its output.

    Modules are compiled once, into the folder ``bytecode``, like those of installed packages.
    """
    env = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = bytecode
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system
    return cpu - before.children_system, done.stdout


def _step(output: str) -> list[float]:
    line = next(line for line in output.splitlines() if line.startswith("PER STEP "))
    return [float(value) for value in line.split()[2:]]


def run(options: Options) -> CaseResult:
    if importlib.util.find_spec("torch") is None:
        return CaseResult("windows", (Table("Whole programs: torch is not installed", (), ()),))
    with tempfile.TemporaryDirectory() as bytecode:
        return _measure(options, bytecode)


def _measure(options: Options, bytecode: str) -> CaseResult:
    rounds = options.round_count(3, 1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:  # compiles their common imports
        first = [sys.executable, "-m", "fastprof", "run", "-o", folder, str(_SCRIPT), "mlp", "16"]
        _run(first, bytecode)
    for name, (_, full) in PROGRAMS.items():
        steps = max(16, full // options.pick(1, 8))
        best: dict[str, list[float]] = {}
        stated: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            profiled = [sys.executable, "-m", "fastprof", "run", "--overhead", "none", "-o", folder]
            for _ in range(rounds):
                for kind, command, *more in (
                    ("alone", [sys.executable]),
                    ("run", profiled),
                    ("said", profiled, "stated"),
                ):
                    cpu, output = _run([*command, str(_SCRIPT), name, str(steps), *more], bytecode)
                    step, step_wall, said = _step(output)
                    seen = best.setdefault(kind, [cpu, step])
                    best[kind] = [min(seen[0], cpu), min(seen[1], step)]
                    if kind == "said":
                        stated.append(said * step / step_wall)
        alone, ours = best["alone"], best["run"]
        real = ours[1] - alone[1]
        claimed = sorted(stated)[len(stated) // 2]
        rows.append(
            (
                name,
                f"{alone[1] * 1e3:.2f}",
                f"{alone[0]:.1f}",
                f"{ours[0]:.1f}",
                f"{ours[0] - 1.1 * alone[0]:+.1f}",
                f"{ours[1] / alone[1]:.2f}",
                f"{real * 1e6:.0f}",
                f"{claimed * 1e6:.0f}",
            )
        )
    table = Table(
        "Whole programs under `fastprof run --overhead none`, CPU time",
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
