"""Compares fastprof with other profilers, interleaved in one run, as ratios.

    python benchmarks/run.py [CASE ...] [--quick] [--rounds N] [--only NAME] [--json FILE]

Cases: functions, sections, truth, e2e, import, memory, outliers, report, windows,
unprofiled, gpu, threads, budget, instructions;
the default is all except the last two, which take long (``instructions`` also needs valgrind).
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys

from harness import Case, Options, machine, render

_CASES = {
    "functions": "cases.functions",
    "sections": "cases.sections",
    "truth": "cases.truth",
    "e2e": "cases.e2e",
    "import": "cases.import_time",
    "memory": "cases.memory",
    "outliers": "cases.outliers",
    "report": "cases.report",
    "windows": "cases.windows",
    "unprofiled": "cases.unprofiled",
    "gpu": "cases.gpu",
    "threads": "cases.threads",
    "budget": "cases.budget",
    "instructions": "cases.instructions",
}
_DEFAULT = [name for name in _CASES if name not in ("budget", "instructions")]


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="fastprof and its peers, interleaved.")
    parser.add_argument("cases", nargs="*", choices=[*_CASES, "all", []], metavar="CASE")
    parser.add_argument("--json", metavar="FILE", help="write all numbers there")
    parser.add_argument("--quick", action="store_true", help="smaller and less exact")
    parser.add_argument("--rounds", type=int, help="interleaved rounds (default: by case)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME",
        help="this program of the case 'budget'; can be repeated",
    )  # fmt: skip
    arguments = parser.parse_args(argv)
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    return arguments


def main(argv: list[str] | None = None) -> int:
    arguments = _arguments(argv)
    asked = list(arguments.cases) or ["all"]
    names = _DEFAULT if "all" in asked else list(dict.fromkeys(asked))
    options = Options(quick=arguments.quick, rounds=arguments.rounds, only=tuple(arguments.only))
    about = machine()
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    results = {}
    for name in names:
        case: Case = importlib.import_module(_CASES[name])
        result = case.run(options)
        for table in result.tables:
            print("\n" + render(table), flush=True)
        results[name] = {
            "tables": [
                {"title": t.title, "columns": t.columns, "rows": t.rows, "remarks": t.remarks}
                for t in result.tables
            ],
            "data": result.data,
        }
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            json.dump({"machine": about, "cases": results}, stream, indent=1)
            stream.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
