"""Predicted against measured step time after the fix, on examples/problems.

    python benchmarks/try_predictions.py [--rounds N] [SCRIPT ...]

Each script that a fix from outside reaches runs under ``fastprof try``.  A row: the baseline, what
the finding predicts, what was measured (with its interval at 95 %), and their distance as a part of
the baseline's step.  The goal is 10 %.  Another program on the CPUs makes the measured time longer.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROBLEMS = Path(__file__).resolve().parent.parent / "examples" / "problems"
#: Script -> the fix of its planted problem.
REACHED = {"slow_dataset": "workers", "unfused_optimizer": "fused", "gc_pressure": "thresholds"}


def tried(script: str, fix: str, rounds: int) -> dict[str, Any]:
    """Return the result of ``fastprof try`` with the fix alone."""
    code = "import sys; from fastprof.cli import main; sys.exit(main())"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-c", code, "try", "--only", fix, "--json", "-o", folder),
                *("--rounds", str(rounds), str(PROBLEMS / f"{script}.py")),
            ],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return dict(json.loads(done.stdout))


def row(script: str, fix: str, rounds: int) -> str:
    """Return the row of one script."""
    found = tried(script, fix, rounds)
    if not found["tried"]:
        return f"{script:<20} nothing to try"
    (one,) = found["tried"]
    base, predicted, measured = found["baseline_ms"], one["predicted_ms"], one["step_ms"]
    if None in (base, predicted, measured):
        return f"{script:<20} {one['status']}: {one['reason'] or 'the finding promises no saving'}"
    part = 100 * (predicted - measured) / base
    low, high = base - one["high_ms"], base - one["low_ms"]
    return (
        f"{script:<20}{base:8.2f}{predicted:11.2f}{measured:10.2f} ({low:.2f} to {high:.2f})"
        f"  {part:+.1f} %  {one['status']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scripts", nargs="*", choices=[[], *REACHED], metavar="SCRIPT")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    print(f"{'ms per step':<20}baseline  predicted  measured")
    for script in options.scripts or REACHED:
        print(row(script, REACHED[script], options.rounds), flush=True)


if __name__ == "__main__":
    main()
