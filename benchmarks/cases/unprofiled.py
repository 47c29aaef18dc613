"""Compares the report's estimate of a step without fastprof with the real time.

Each round runs the same program alone, profiled and alone again in one process, because two
processes of a program differ by some per cent.  If the two runs alone differ, the machine has
changed and the real time is unknown: the round is repeated.  The median of the rounds counts.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from statistics import median

from harness import CaseResult, Options, Table

from cases.unprofiled_programs import PROGRAMS

_SCRIPT = Path(__file__).with_name("unprofiled_programs.py")
TARGET = 0.02

#: Largest difference of the runs alone before and after; tries of a round.
_SAME, _TRIES = 0.03, 4


def _step(*arguments: str) -> list[float | None]:
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), *arguments], capture_output=True, text=True, check=True
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("PER STEP "))
    return [None if word == "-" else float(word) for word in line.split()[2:]]


def _round(name: str, steps: int) -> list[float | None]:
    """Return the times alone, profiled, estimated, and the estimate's error, if possible
    undisturbed."""
    for _ in range(_TRIES):
        before, after, *rest = _step(name, str(steps))
        assert before is not None
        assert after is not None
        if max(before, after) <= min(before, after) * (1.0 + _SAME):
            return [(before + after) / 2, *rest]
    return [min(before, after), *rest]  # the disturbed one is slower


def run(options: Options) -> CaseResult:
    rounds, steps = options.round_count(3, 1), options.pick(2000, 1000)
    rows = []
    for name in PROGRAMS:
        if name == "torch" and importlib.util.find_spec("torch") is None:
            continue
        pairs = [_round(name, steps) for _ in range(rounds)]
        known = [pair for pair in pairs if pair[2] is not None]
        off = [said / alone - 1.0 for alone, _, said, *_ in known]
        rows.append(
            (
                name,
                f"{median(p[0] for p in pairs):.3f}",
                f"{median(p[1] for p in pairs):.3f}",
                f"{median(p[2] for p in known):.3f}" if known else "n/a",
                f"{median(p[3] for p in known):.3f}" if known else "n/a",
                f"{100 * median(off):+.1f}" if off else "n/a",
                f"{100 * max(off, key=abs):+.1f}" if off else "n/a",
                f"{len(known)} of {len(pairs)}",
            )
        )
    table = Table(
        "What a step takes without fastprof: measured alone, and what the report of a profiled "
        "run says",
        ("program", "alone ms", "profiled ms", "said ms", "+- ms", "off %", "worst %", "said in"),
        tuple(rows),
        (f"goal: off by at most {100 * TARGET:.0f} %",),
    )
    return CaseResult("unprofiled", (table,), {"rows": [list(row) for row in rows]})
