"""Runs for the tests of HTML reports, and readers of a written page."""

from __future__ import annotations

import io
import json
import random
import re
from dataclasses import replace
from typing import Any

from fastprof.render.html import write
from fastprof.render.html.chapters import chapters
from fastprof.render.html.data import page_data
from fastprof.report.outlier_rows import OutlierFunction, OutlierSection
from fastprof.report.outliers import Outlier
from fastprof.results.report import Report, build_report
from fastprof.snapshot import Key, NodeTable, Snapshot, StepRow, Steps, ThreadTree
from fastprof.snapshot.run_phases import RUN_PHASES, PhaseTime
from fastprof.snapshot.steps import StepSeries
from unit.hostile import NAMES
from unit.snapshots import (
    MS,
    ROOT,
    Builder,
    Node,
    activity,
    c,
    cost,
    gpu,
    h200,
    histogram,
    kernel,
    memory,
    py,
    section,
    timeline,
    waits,
)

#: In addition to unit.hostile.NAMES: texts that have broken out of scripts, attributes and
#: comments.
MARKUP = (
    "</script><script>window.broken = 1</script>",
    "</SCRIPT ><img src=x onerror=window.broken=1>",
    "<!--<script>",
    "-->]]><svg onload=window.broken=1>",
    '" onmouseover="window.broken=1" x="',
    "' autofocus onfocus='window.broken=1",
    "${window.broken = 1}",
    "`;window.broken=1;//",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;img src=x onerror=window.broken=1&gt;",
    "javascript:window.broken=1",
    "<a href='javascript:window.broken=1'>click</a>",
    "</style><style>*{display:none}</style>",
    "</textarea></title><iframe srcdoc='<script>parent.broken=1</script>'>",
    '\\"; window.broken = 1; //',
    "%{x}<b>bold</b>",
    "constructor",
)


def text_of(report: Report) -> str:
    """Return the page of a report."""
    stream = io.StringIO()
    write(report, stream)
    return stream.getvalue()


def data_of(page: str) -> dict[str, Any]:
    """Return the data in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    return dict(json.loads(found[1]))


def chapters_of(report: Report) -> dict[str, str]:
    """Return the markup of the chapters by name; chapters that scripts draw are empty."""
    return {mark: made for mark, _, made in chapters(report, page_data(report))}


def training() -> Snapshot:
    """Return a run with steps, sections, functions, a second thread, a GPU, memory and a loader."""
    builder = Builder()
    load = Node(section("data"), 20, 10 * MS, [Node(py("load", 5, "data.py"), 20, 90 * MS)])
    inner = Node(py("inner", 9, "model.py", "Net.inner"), 400, 120 * MS, [Node(c("sum"), 800, MS)])
    outer = Node(py("forward", 2, "model.py", "Net.forward"), 20, 30 * MS, [inner])
    forward = Node(section("forward"), 20, 5 * MS, [outer])
    train = Node(py("train", 1, "train.py"), 1, 4 * MS, [load, forward])
    builder.thread(train, root_ns=2 * MS)
    builder.thread(Node(py("watch", 3, "watch.py"), 7, 8 * MS), ident=2, name="watcher")
    sections = (
        builder.stats("data", [5 * MS] * 20),
        builder.stats("forward", [(7 + i % 3) * MS for i in range(20)]),
    )
    columns = {s.key: tuple((5 if n == 0 else 7 + i % 3) * MS for i in range(20))
               for n, s in enumerate(sections)}  # fmt: skip
    wall = tuple(sum(column) + MS for column in zip(*columns.values()))
    rows = tuple(StepRow(key, 20, sum(column)) for key, column in columns.items())
    squares = sum((ns / 1e9) ** 2 for ns in wall)
    starts = tuple(sum(wall[:i]) for i in range(20))
    split = (("compute", sum(wall) - 40 * MS), ("gpu_wait", 30 * MS), ("other", 10 * MS))
    series = StepSeries(3, starts, wall, sections=tuple(columns.items()), gc_ns=(MS,) + (0,) * 19)
    steps = Steps(
        23, 3, sum(wall), squares, min(wall), max(wall), wall, histogram(wall), rows,
        series=series, split=split, split_missing=("lock: functions were not recorded",),
    )  # fmt: skip
    return builder.snapshot(
        meta={"python": "3.12.1", "rank": None},
        sections=sections,
        steps=steps,
        calibration=cost(python=(50, 50)),
        gpu=gpu(
            activity(0, 30 * MS, (0, 6)),
            activity(0, 10 * MS, (0, 2)),
            devices=(h200(whole=timeline(40 * MS)),),
            kernels=(kernel("gemm<float>", 40 * MS, 8),),
            host=(waits((0, 6), syncs=2, blocked_ns=MS),),
        ),
        memory=memory(),
        notes=("A note.",),
    )


def hostile() -> Snapshot:
    """Return a run in which every hostile name is a section, a function, a thread and so on."""
    builder = Builder()
    names = [*(name for name in NAMES.values() if len(name) < 1000), *MARKUP]
    nodes = []
    for name in names:
        work = Node(Key("python", name, 7, name, name), 2, 20 * MS)
        work.children = [Node(Key("c", "~", 0, f"<{name}>", name), 3, 5 * MS)]
        nodes.append(Node(section(name), 10, MS, [work]))
    builder.thread(Node(py("main"), 1, MS, nodes), name=MARKUP[0])
    builder.thread(Node(py("other"), 1, MS), ident=2, name=MARKUP[1])
    stats = tuple(builder.stats(name, [2 * MS] * 4) for name in names)
    wall = (2 * MS * len(names) + MS,) * 4
    steps = Steps(
        4, 0, sum(wall), 0.0, wall[0], wall[0], wall, histogram(wall),
        tuple(StepRow(s.key, 4, 8 * MS) for s in stats),
        series=StepSeries(wall_ns=wall, sections=tuple((s.key, (2 * MS,) * 4) for s in stats)),
    )  # fmt: skip
    places = range(2, 2 + 3 * len(names), 3)
    return builder.snapshot(
        meta={"python": "3.12.1", **{name: name for name in names}},
        sections=stats,
        steps=steps,
        notes=tuple(names),
        gpu=gpu(
            *(activity(i, MS, (0, place)) for i, place in enumerate(places)),
            devices=(h200(name=MARKUP[0], whole=timeline(MS)),),
            kernels=tuple(kernel(name, MS) for name in names),
        ),
    )


def large(functions: int, contexts: int) -> Snapshot:
    """Return a random tree of ``contexts`` contexts, each function used in turn, and 4096 steps."""
    rnd = random.Random(1)
    keys = (ROOT, *(py(f"work_{i}", i, f"module_{i % 97}.py") for i in range(1, functions + 1)))
    parent = [-1, *(rnd.randrange(max(0, i - 300), i) for i in range(1, contexts))]
    key = [0, *(1 + i % functions for i in range(contexts - 1))]
    calls = [0, *(rnd.randint(1, 9) for _ in range(1, contexts))]
    own = [0, *(rnd.randint(1, MS) for _ in range(1, contexts))]
    nodes = NodeTable(tuple(parent), tuple(key), tuple(calls), (0,) * contexts, tuple(own))
    wall = tuple(rnd.randint(50 * MS, 60 * MS) for _ in range(4096))
    steps = Steps(4096, 0, sum(wall), 0.0, min(wall), max(wall), wall, histogram(wall))
    return Snapshot(
        meta={"python": "3.12.1"},
        duration_ns=sum(own),
        keys=keys,
        threads=(ThreadTree(1, "MainThread", False, nodes),),
        steps=steps,
    )


def in_phases() -> Snapshot:
    """Return a run with set-up, steps and validation; ``prog.py`` called ``work`` in each."""
    builder = Builder()
    for ns in (2 * MS, 10 * MS, 4 * MS):
        builder.thread(Node(py("<module>", 1, "/code/prog.py"), 1, MS, [Node(py("work"), 1, ns)]))
    trees = [thread.nodes for thread in builder.threads]
    parent, key, calls, self_ns, phase = [-1], [0], [0], [0], [0]
    for of, nodes in zip(("setup", "steps", "validation"), trees, strict=True):
        parent += [0, len(parent)]
        key += nodes.key[1:]
        calls += nodes.calls[1:]
        self_ns += nodes.self_ns[1:]
        phase += [RUN_PHASES.index(of)] * 2
    columns = (parent, key, calls, [0] * len(key), self_ns, phase, [0] * len(RUN_PHASES))
    nodes = NodeTable(*(tuple(column) for column in columns))
    wall = (11 * MS,)
    steps = Steps(1, 0, 11 * MS, 0.0, 11 * MS, 11 * MS, wall, histogram(wall))
    walls = (("setup", 3 * MS), ("steps", 11 * MS), ("validation", 5 * MS))
    builder.threads[:] = [ThreadTree(1, "MainThread", False, nodes)]
    return builder.snapshot(steps=steps, phases=tuple(PhaseTime(n, ns, 1) for n, ns in walls))


def report_of(snapshot: Snapshot) -> Report:
    """Return the report of a snapshot, with times as recorded."""
    return build_report(snapshot, correct_times=False)


def with_outlier(report: Report) -> Report:
    """Return the report with one step that was slower than usual."""
    function = OutlierFunction(
        "open", "open", "~", 0, "c", "load", "", 6.0, 1.0, 5.0, 3, 1.0
    )  # fmt: skip
    step = Outlier(
        9, 90.0, 17.0, 13.0, 1.3, (OutlierSection("data", 9.0, 5.0, 4.0),), (function,), 1,
        None, None, None, ("step 9: 17 ms.", "data took longer."),
    )  # fmt: skip
    return replace(report, steps=replace(report.steps, outliers=(step,)))
