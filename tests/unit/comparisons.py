"""Runs with steps of known length, for tests of comparisons."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from fastprof.results.report import Report, build_report
from fastprof.snapshot import LoaderStats, StepRow, Steps
from fastprof.snapshot.loaders import WorkerStats
from fastprof.snapshot.steps import StepSeries
from unit.snapshots import MS, Builder, Node, gpu, h200, histogram, memory, py, section, timeline

SKIPPED = 3


def normal(mean_ms: float, n: int, seed: int, spread: float = 0.03) -> list[float]:
    """Return independent step times in ms."""
    source = random.Random(seed)
    return [mean_ms * (1 + spread * source.gauss(0, 1)) for _ in range(n)]


def run(
    steps_ms: Sequence[float],
    sections: Mapping[str, Sequence[float]] = {},
    *,
    functions: Sequence[Node] = (),
    with_series: bool = True,
    series: Mapping[str, Any] = {},
    **fields: Any,
) -> Report:
    """Return a run whose measured steps took ``steps_ms``; sections are ms in each step."""
    builder = Builder()
    walls = [round(ms * MS) for ms in steps_ms]
    columns = {name: [round(ms * MS) for ms in values] for name, values in sections.items()}
    nodes = [Node(section(name), len(walls), sum(column)) for name, column in columns.items()]
    builder.thread(*nodes, *functions, root_ns=max(0, sum(walls) - sum(map(sum, columns.values()))))
    keys = {name: builder.key(section(name)) for name in columns}
    made = StepSeries(
        first=SKIPPED,
        start_ns=tuple(sum(walls[:i]) for i in range(len(walls))) if len(walls) < 200 else
        tuple(range(len(walls))),
        wall_ns=tuple(walls),
        sections=tuple((keys[name], tuple(column)) for name, column in columns.items()),
        **series,
    )  # fmt: skip
    steps = Steps(
        count=len(walls) + SKIPPED,
        skipped=SKIPPED,
        sum_ns=sum(walls),
        sum_sq=math.fsum((ns / 1e9) ** 2 for ns in walls),
        min_ns=min(walls),
        max_ns=max(walls),
        recent_ns=tuple(walls),
        hist=histogram(walls),
        rows=tuple(StepRow(keys[name], len(c), sum(c)) for name, c in columns.items()),
        series=made if with_series else StepSeries(),
    )
    fields = {"meta": {"python": "3.12.1", "platform": "linux"}, **fields}
    return build_report(
        builder.snapshot(
            steps=steps,
            sections=tuple(builder.stats(name, column) for name, column in columns.items()),
            **fields,
        )
    )


def training(step_ms: float, batch_size: int, busy: float, memory_gib: float) -> Report:
    """Return a run from the guides: step time, batch size, busy part of the GPU, memory in use."""
    n = 100
    wall = round(n * step_ms * MS)
    idle = round(wall * (1 - busy))
    return run(
        [step_ms] * n,
        gpu=gpu(devices=(h200(whole=timeline(wall - idle, (-1, idle))),)),
        memory=memory(total_bytes=80 << 30, peak_reserved=round(memory_gib * 2**30)),
        loaders=(
            LoaderStats(
                "main", "train", n + SKIPPED, {}, workers=WorkerStats(4, batch_size=batch_size)
            ),
        ),
    )


def function(name: str, self_ms: float, line: int = 1, file: str = "train.py", **more: Any) -> Node:
    return Node(py(name, line, file, **more), 10, round(self_ms * MS))
