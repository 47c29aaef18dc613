"""Prints the tests of each requirement (row), and fails if a row has none.

    python tools/requirements.py [ROW ...]

S-rows are what the product does, E-rows corrections to them, F-rows failures that it survives,
P-rows security promises.
A test shows the row whose id is in its name (``test_s3_05_...``, ``test_f21_...``), and the rows
that ``ALSO`` below assigns to it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Rows that no test can show; their text says what does.
WITHOUT = ("S3-17", "S4-22")

#: Row -> the requirement in short, or the reason why there is no test yet.
ROWS: dict[str, str] = {
    "S0-01": "`fastprof run`: both layers",
    "S0-02": "one layer alone",
    "S0-03": "`fastprof run`: steps and options",
    "S0-04": "cProfile's command line",
    "S0-05": "files that pstats reads",
    "S0-06": "sorting by cumulative and by own time as cProfile",
    "S0-07": "callers and callees",
    "S0-08": "tottime, cumtime, ncalls, percall; recursion as total/primitive",
    "S0-09": "the four summary blocks after a run",
    "S0-10": "output directory",
    "S0-11": "the eight options of operator windows",
    "S0-12": "what each of them does",
    "S0-13": "CUDA asked for without CUDA",
    "S0-14": "the six schedule keys",
    "S0-15": "which steps a schedule records",
    "S0-16": "no schedule: the whole run",
    "S0-17": "files of operator windows",
    "S0-18": "a trace opens in Perfetto",
    "S0-19": "a trace shows the GPU",
    "S0-20": "`fastprof compare`: both blocks and a joined difference",
    "S0-21": "finding: workers are shut down for seconds",
    "S0-22": "finding: tokens are counted",
    "S0-23": "finding: reading values of tensors",
    "S0-24": "finding: copies of tensors",
    "S0-25": "two saved runs of 100 steps are compared",
    "S1-01": "overview: utilization, step time, GPU memory, advice",
    "S1-02": "finding: GPU utilization and its bands",
    "S1-03": "finding: variation of the step time",
    "S1-04": "finding: GPU memory too empty or too full",
    "S1-05": "two phrases of advice, verbatim",
    "S1-06": "operators sorted by three keys",
    "S1-07": "shares of operators",
    "S1-08": "loaders: when to raise the number of workers",
    "S1-09": "finding: copy_ and to",
    "S1-10": "finding: the optimizer's share",
    "S1-11": "finding: launching kernels",
    "S1-12": "kernel view",
    "S1-13": "small kernels, blocks per SM",
    "S1-14": "kernels known by name",
    "S1-15": "patterns of a timeline",
    "S1-16": "a step's sections",
    "S1-17": "ideal shares beside the measured ones",
    "S1-18": "memory from step to step",
    "S1-19": "memory by parameters, gradients, optimizer state and the rest",
    "S1-20": "a sampler's time under section data; uniformity is compared",
    "S1-21": "counts with gradient accumulation",
    "S1-22": "ranks: a table, the late one, what others wait; utilization, memory, temperature",
    "S1-23": "recomputation is no finding",
    "S1-24": "advice on data loading",
    "S1-25": "advice on small batches",
    "S1-26": "advice on attention",
    "S1-27": "the optimizer's limit of 15 %",
    "S1-28": "advice on logging",
    "S1-29": "checklist of seven questions",
    "S1-30": "first worked example",
    "S1-31": "second worked example",
    "S1-32": "operator table as text",
    "S1-33": "memory line and summary",
    "S1-34": "before and after: four figures with relative changes",
    "S1-35": "`fastprof targets`",
    "S1-36": "the report in TensorBoard without its plugin",
    "S2-01": "an Accelerate user's configuration",
    "S2-02": "its defaults",
    "S2-03": "steps of its windows",
    "S2-04": "no directory, no file",
    "S2-05": "repeated cycles",
    "S2-06": "first steps left out of the statistics",
    "S2-07": "how many workers a loader needs",
    "S2-08": "finding: all-reduce",
    "S2-09": "finding: gradient scaling",
    "S2-10": "finding: low occupancy",
    "S2-11": "bands of four limits",
    "S2-12": "memory table",
    "S2-13": "restricted to one process",
    "S2-14": "barrier before a window",
    "S2-15": "trace file per rank",
    "S2-16": "`fastprof quickcheck`",
    "S2-17": "expected ratios",
    "S3-01": "canonical section names",
    "S3-02": "the FASTPROF switch",
    "S3-03": "section as context manager and decorator",
    "S3-04": "report every N steps",
    "S3-05": "layout of the periodic report",
    "S3-06": "rows of the breakdown",
    "S3-07": "rows of the distribution",
    "S3-08": "the report can be searched by line",
    "S3-09": "order of rows",
    "S3-10": "final report",
    "S3-11": "slowest component",
    "S3-12": "is data loading efficient",
    "S3-13": "data are cumulative",
    "S3-14": "backward against forward",
    "S3-15": "advice texts",
    "S3-16": "sections skipped on some steps",
    "S3-17": "overhead: no timed test; `python benchmarks/overhead_onoff.py`",
    "S3-18": "short runs",
    "S3-19": "no output: how to enable",
    "S4-01": "metrics are on by default",
    "S4-02": "training keys",
    "S4-03": "validation keys",
    "S4-04": "batch wait",
    "S4-05": "data is the time of next()",
    "S4-06": "forward includes the loss",
    "S4-07": "optional synchronize",
    "S4-08": "only the primary rank logs",
    "S4-09": "logging frequency",
    "S4-10": "emission at optimizer boundaries",
    "S4-11": "several loaders",
    "S4-12": "loader names",
    "S4-13": "names made safe",
    "S4-14": "an exhausted loader",
    "S4-15": "optimizer time goes to the last loader",
    "S4-16": "values are float ms",
    "S4-17": "a row per loader",
    "S4-18": "a failing logger",
    "S4-19": "loggers",
    "S4-20": "overhead procedure: `python benchmarks/overhead_onoff.py`",
    "S4-21": "nothing grows while not logging",
    "S4-22": "on CUDA: needs a GPU; the synchronize path is tested with a stand-in (S4-07)",
    "E1": "steps are counted from 0",
    "E2": "wait and warm-up belong to each cycle",
    "E3": "shares that sum to 100 %",
    "E4": "gradients are once, Adam's state twice the parameters",
    "E5": "Accelerate's own defaults",
    "E6": "every cycle is kept",
    "E7": "quickcheck: a graph for each run",
    "E8": "a report every 50 steps unless told",
    "E9": "a section is a context manager and a decorator",
    "E10": "one table of limits, with the origin of each",
    "E11": "batch wait is really emitted",
    "E12": "the mean per micro-batch, sum and count beside it",
    "E13": "per-loader and global batch wait",
    "E14": "the change of utilization is relative",
    "E15": "nothing needs the TensorBoard plugin",
    "E16": "data loading that waits or that computes",
    **{f"F{i}": "" for i in range(1, 51)},
    **{f"P{i}": "" for i in range(1, 10)},
}

ROWS.update(
    F1="exceptions through sections and calls",
    F2="sections left out of order, twice or never",
    F3="section left in another thread",
    F4="enable and disable twice",
    F5="enabled and disabled at different depths",
    F6="disabled in another thread",
    F7="two profilers",
    F8="the program removes the hook",
    F9="the program takes the hook",
    F10="a profile function was there before",
    F11="sys.setprofile(sys.getprofile())",
    F12="other tools beside us",
    F13="errors near the callback",
    F14="timers that misbehave",
    F15="threads end while recorded",
    F16="many short threads",
    F17="several profilers and threads",
    F18="threads start and end while the hook is set",
    F19="fork with threads",
    F20="worker processes",
    F21="killed while writing",
    F22="signals that end the program",
    F23="signal handlers",
    F24="interpreter exit",
    F25="profiler dropped while enabled",
    F26="greenlets",
    F27="asyncio",
    F28="generators closed by the collector",
    F29="recursion 100 000 deep",
    F30="RecursionError",
    F31="very many functions",
    F32="very many sections",
    F33="code objects and arguments",
    F34="clocks that go back",
    F35="overflow",
    F36="no memory",
    F37="leaks",
    F38="subinterpreters",
    F39="free-threaded builds: recorded without the GIL, and tested so",
    F40="files that cannot be written",
    F41="working directory changed",
    F42="two ranks, one file name",
    F43="strange names",
    F44="names in keys and file names",
    F45="nan and infinity",
    F46="hostile input",
    F47="damaged .stats files",
    F48="environment variables",
    F49="CUPTI absent, wrong, refusing, losing records",
    F50="constructor abuse",
    P1="the threat model: SECURITY.md, a text",
    P2="opening a profile executes nothing, in bounded memory",
    P3="HTML report: nothing from the network, no name becomes markup",
    P4="names are harmless in every output",
    P5="how files are written",
    P6="no server, no network",
    P7="no source text or arguments recorded; command line and environment without secrets",
    P8="where libcupti is loaded from",
    P9="a fault costs data, not the run",
)

_METRICS = "tests/session/test_metrics.py"

#: Tests of a row that is not in their names.
ALSO: dict[str, list[str]] = {
    "P9": [f"{_METRICS}::test_s4_18_a_failing_logger_is_reported_once_and_switched_off"],
}

_ID = re.compile(r"_(?:(s[0-4])_(\d\d)|([efp]\d{1,2}))(?=_|$)")
_C_TEST = re.compile(r"^TEST\((\w+)\)", re.MULTILINE)


def rows_of(name: str) -> list[str]:
    """Return the ids of the rows that a test called ``name`` shows."""
    return [f"{m[1].upper()}-{m[2]}" if m[1] else m[3].upper() for m in _ID.finditer("_" + name)]


@cache
def tests() -> tuple[tuple[str, str], ...]:
    """Return (file, name) of every test in Python and C."""
    return tuple(_tests())


def _tests() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if function and node.name.startswith("test_"):
                yield path.relative_to(ROOT).as_posix(), node.name
    listed = (ROOT / "tests" / "c" / "list.h").read_text(encoding="utf-8")
    for path in sorted((ROOT / "tests" / "c").glob("test_*.c")):
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8")):
            if rows_of(word) and re.search(rf"\b{word}\b", listed):
                yield path.relative_to(ROOT).as_posix(), word


def tests_of_rows() -> dict[str, list[str]]:
    """Return the tests of every row."""
    found: dict[str, set[str]] = {row: set(ALSO.get(row, ())) for row in ROWS}
    for file, name in tests():
        for row in rows_of(name):
            found[row].add(f"{file}::{name}")
    return {row: sorted(names) for row, names in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", metavar="ROW", nargs="*", help="such as S3-05; none: all")
    wanted = parser.parse_args().rows
    found = tests_of_rows()
    for row in wanted or ROWS:
        print(f"{row} {ROWS[row]}", *found[row], sep="\n    ")
    missing = [row for row in ROWS if not found[row] and row not in WITHOUT]
    if missing:
        print(f"no test shows {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
