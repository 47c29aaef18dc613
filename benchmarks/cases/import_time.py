"""Measures the time that ``import fastprof`` adds to the start of an interpreter."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import fastprof_adapter
import harness
from harness import CaseResult, Options, Samples, Table

TARGET_MS = 15.0
_STATEMENTS = {"bare": "pass", "fastprof": "import fastprof"}


def _wall(statement: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - begin


def _import_ms() -> float:
    """Return the cumulative time that the interpreter itself reports, in ms."""
    command = [sys.executable, "-X", "importtime", "-c", "import fastprof"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    match = re.search(r"^import time:\s*\d+ \|\s*(\d+) \| fastprof$", lines, re.MULTILINE)
    if match is None:
        raise RuntimeError("-X importtime did not name fastprof")
    return int(match.group(1)) / 1000


def _heavy_modules() -> list[str]:
    code = (
        "import sys, fastprof;"
        "print(*(m for m in ('torch', 'numpy', 'rich', 'asyncio') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.split()


def run(options: Options) -> CaseResult:
    """Start interpreters with and without the import in turn."""
    why = fastprof_adapter.missing()
    if why:
        table = Table("import", ("what", "ms"), (("fastprof", None),), (why,))
        return CaseResult("import", (table,), {"missing": why})
    rounds = options.round_count(20, 2)
    samples = {name: Samples() for name in _STATEMENTS}
    importtime = []
    for _ in range(rounds):
        for name, statement in _STATEMENTS.items():
            samples[name].seconds.append(_wall(statement))
        importtime.append(_import_ms())
    heavy = _heavy_modules()
    bare, both = (samples[name].best * 1e3 for name in _STATEMENTS)
    rows = (
        ("bare interpreter", bare, None),
        ("with import fastprof", both, None),
        ("difference", both - bare, f"<= {TARGET_MS:g}"),
        ("-X importtime, cumulative", min(importtime), f"<= {TARGET_MS:g}"),
    )
    table = Table(
        "import: minima of whole processes",
        ("what", "ms", "target"),
        tuple((name, value, goal or "") for name, value, goal in rows),
        (f"of torch, numpy, rich and asyncio it imports: {', '.join(heavy) or 'none'}",),
    )
    data = {
        "rounds": rounds,
        "bare_ms": bare,
        "with_fastprof_ms": both,
        "difference_ms": both - bare,
        "importtime_ms": min(importtime),
        "heavy_modules": heavy,
        "ratio": harness.ratio(both, bare),
    }
    return CaseResult("import", (table,), data)
