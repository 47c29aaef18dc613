"""Times the end of `fastprof run`: report, summary and both files."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable

import fastprof_adapter
from harness import CaseResult, Options, Table, settle

#: A program that imports torch and trains a small network for 50 steps has 8,854 and 241,740.
FUNCTIONS = 9_000
CONTEXTS = 240_000


def _tree(functions: int, contexts: int) -> tuple[list[int], list[int]]:
    """Return parent and function of every context; the root is 0, functions count from 1."""
    choose = random.Random(1)
    # Nearly all callees are defined after their caller; the rest recurse.
    callees = [
        [
            choose.randint(f, functions) if choose.random() < 0.95 else choose.randint(1, f)
            for _ in range(2)
        ]
        for f in range(1, functions + 1)
    ]
    parent, function = [-1], [0]
    size = contexts // functions
    for f in range(1, functions + 1):
        top = len(parent)
        parent.append(0)
        function.append(f)
        for _ in range(size - 1):
            above = choose.randrange(top, len(parent))
            parent.append(above)
            function.append(choose.choice(callees[function[above] - 1]))
    return parent, function


_FLOOR = "one loop over the contexts"


def _one_loop(columns: tuple[list[int], list[int]]) -> None:
    total = [0] * len(columns[0])
    for i, above in enumerate(columns[0]):
        total[above] += i


def run(options: Options) -> CaseResult:
    """Measure the CPU time of each part: the fastest of several runs, each on a new recording."""
    why = fastprof_adapter.missing()
    if why:
        table = Table("report", ("what", "ms"), (("fastprof", None),), (why,))
        return CaseResult("report", (table,), {"missing": why})
    functions = options.pick(FUNCTIONS, 300)
    columns = _tree(functions, options.pick(CONTEXTS, 3_000))
    best: dict[str, float] = {}

    def timed(name: str, action: Callable[[], object]) -> float:
        begin = time.thread_time()
        action()
        took = time.thread_time() - begin
        best[name] = min(took, best.get(name, took))
        return took

    settle()
    gc.disable()  # like the command itself
    for _ in range(options.round_count(5, 2)):
        timed(_FLOOR, lambda: _one_loop(columns))
        parts = fastprof_adapter.final_report(functions, *columns)
        whole = sum(timed(name, action) for name, action in parts.items())
        best["all of it"] = min(whole, best.get("all of it", whole))
    gc.enable()
    table = Table(
        f"report: {functions:,} functions in {len(columns[0]):,} contexts; CPU time",
        ("part", "ms", "of the loop"),
        tuple((name, seconds * 1e3, seconds / best[_FLOOR]) for name, seconds in best.items()),
    )
    return CaseResult("report", (table,), {"seconds": best, "contexts": len(columns[0])})
