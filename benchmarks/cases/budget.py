"""Compares whole programs under the default ``fastprof run`` with the same programs alone.

Each round runs a program alone and under fastprof in new processes, at the same time: the speed of
a virtual machine changes by some per cent within seconds, for both of them.  A program that starts
processes runs in turns, and every program on a machine with one CPU.  The figures are ratios of
the two runs of a round: of the steps after the full look at the first ones, and of the whole
process.  Their interval is the one of a t-test over the rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, stdev

import fastprof_adapter
from harness import CaseResult, Cell, Options, Table

from cases.budget_programs import PROGRAMS

_SCRIPT = Path(__file__).with_name("budget_programs.py")

#: Packages that a program needs beside torch.
_NEEDS = {
    "trainer": "transformers",
    "lightning": "lightning",
    "accelerate": "accelerate",
    "recommender": "pandas",
}

#: Programs that start processes, which need the CPUs.
_WITH_PROCESSES = ("recommender",)
#: Quantiles of 97.5 % of Student's t, from one degree of freedom on; then the normal distribution's
#: as an approximation.
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14)


@dataclass(frozen=True)
class Process:
    """One run: seconds of the process, of all steps and of those after the look."""

    cpu: float
    wall: float
    steps_cpu: float
    steps_wall: float
    loop_cpu: float
    loop_wall: float


def _run(command: list[str], bytecode: str) -> Process:
    """Run a program, with its modules compiled once in ``bytecode``, as installed ones are."""
    env = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONHASHSEED": "0"}
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=env)
        # This process's own usage: the other program of the round may end meanwhile.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        out.seek(0)
        err.seek(0)
        if process.returncode:
            raise RuntimeError(f"{command} failed: {err.read()[-2000:]}")
        line = next(line for line in out if line.startswith("LOOP "))
    used = usage.ru_utime + usage.ru_stime
    return Process(used, wall, *map(float, line.split()[1:]))


def _run_both(
    commands: list[list[str]], bytecode: str, *, swap: bool, together: bool
) -> tuple[Process, Process]:
    """Run two programs, at the same time or in turns; ``swap``: the second one first."""
    order = (1, 0) if swap else (0, 1)
    with ThreadPoolExecutor(2 if together else 1) as pool:
        begun = {i: pool.submit(_run, commands[i], bytecode) for i in order}
        return begun[0].result(), begun[1].result()


def _ratio(pairs: list[tuple[float, float]]) -> tuple[float, float | None]:
    """Return the geometric mean of the ratios, and the factor to the end of its interval."""
    logs = [log(ours / alone) for alone, ours in pairs]
    if len(logs) < 2:
        return exp(fmean(logs)), None
    t = _T[len(logs) - 2] if len(logs) - 2 < len(_T) else 1.96
    return exp(fmean(logs)), exp(t * stdev(logs) / sqrt(len(logs)))


def _shown(pairs: list[tuple[float, float]]) -> str:
    middle, factor = _ratio(pairs)
    if factor is None:
        return f"{middle:.3f}"
    return f"{middle:.3f} ({middle / factor:.3f}-{middle * factor:.3f})"


def _row(name: str, runs: list[tuple[Process, Process]], file: str) -> tuple[Cell, ...]:
    def pairs(figure: str) -> list[tuple[float, float]]:
        return [(getattr(alone, figure), getattr(ours, figure)) for alone, ours in runs]

    stated, most, steps, recorded = fastprof_adapter.stated_cost(file)
    share = "none"
    if stated is not None and most is not None:
        share = f"{100 * stated:.1f} (at most {100 * most:.1f})"
    return (
        name,
        _shown(pairs("loop_cpu")),
        _shown(pairs("loop_wall")),
        _shown(pairs("cpu")),
        _shown(pairs("wall")),
        f"{100 * (1 - 1 / _ratio(pairs('steps_cpu'))[0]):.1f}",
        share,
        f"{recorded} of {steps}",
    )


def _measure(name: str, options: Options, bytecode: str) -> tuple[Cell, ...]:
    _, look, more = PROGRAMS[name]
    script = [str(_SCRIPT), name, str(look), str(options.pick(more, more // 5))]
    together = name not in _WITH_PROCESSES and len(os.sched_getaffinity(0)) >= 2
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.round_count(5, 1)):
            commands = [
                [sys.executable, *script],
                [sys.executable, "-m", "fastprof", "run", "-o", folder, *script],
            ]
            runs.append(_run_both(commands, bytecode, swap=number % 2 == 1, together=together))
        row = _row(name, runs, str(next(Path(folder).glob("*.fprof"))))
    print("  ".join(map(str, row)), file=sys.stderr, flush=True)
    return row


def run(options: Options) -> CaseResult:
    if find_spec("torch") is None:
        return CaseResult("budget", (Table("budget: torch is not installed", (), ()),))
    wanted = options.only or tuple(PROGRAMS)
    missing = [n for n in wanted if n in _NEEDS and find_spec(_NEEDS[n]) is None]
    rows = []
    with tempfile.TemporaryDirectory() as bytecode:
        with tempfile.TemporaryDirectory() as folder:  # compiles their common imports
            first = [sys.executable, "-m", "fastprof", "run", "-o", folder]
            _run([*first, str(_SCRIPT), "tiny mlp", "20", "20"], bytecode)
        rows = [_measure(name, options, bytecode) for name in wanted if name not in missing]
    table = Table(
        "budget: the default `fastprof run` / alone",
        (
            "program",
            "CPU, after the look",
            "wall, after the look",
            "CPU, process",
            "wall, process",
            "cost of all steps %",
            "stated %",
            "with functions",
        ),
        tuple(rows),
        (
            "goals after the look: at most 1.01 for steps from 1 ms on, else 1.03 (tiny mlp, mlp,",
            "ppo, vae); stated within 0.3 points of the cost of all steps, which is CPU time",
            *(f"{name}: {_NEEDS[name]} is not installed" for name in missing),
        ),
    )
    return CaseResult("budget", (table,), {"rows": [list(row) for row in rows]})
