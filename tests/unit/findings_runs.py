"""Hand-made training runs for the rules: a healthy run, and changes to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastprof.report.findings import Finding
from fastprof.results.report import Report, build_report
from fastprof.snapshot import LoaderStats, Snapshot, StepRow, Steps
from fastprof.snapshot.gpu import COPY_D2H, COPY_H2D, GpuSnapshot
from fastprof.snapshot.loaders import LoadTime, WorkerStats
from fastprof.snapshot.memory import MemorySample, MemorySnapshot
from fastprof.snapshot.operators import Operator, OperatorSnapshot
from fastprof.snapshot.steps import StepSeries
from unit.snapshots import (
    MIB,
    MS,
    Builder,
    Key,
    Node,
    activity,
    gpu,
    h200,
    histogram,
    kernel,
    memory,
    py,
    section,
    timeline,
)

#: ms per section of a healthy step of 100 ms.
HEALTHY = {"data": 6, "forward": 36, "backward": 43, "optimizer": 9}
STEPS = 40

TENSOR = "<method '{}' of 'torch._C.TensorBase' objects>"


def tensor(name: str) -> Key:
    """Return the key of a method of torch.Tensor."""
    return Key("c", "~", 0, TENSOR.format(name), f"Tensor.{name}")


def c_function(label: str, qualname: str) -> Key:
    return Key("c", "~", 0, label, qualname)


def torch_py(file: str, qualname: str, line: int = 10) -> Key:
    """Return the key of a Python function of torch."""
    name = qualname.rsplit(".", 1)[-1]
    return Key("python", f"/site-packages/{file}", line, name, qualname)


def calls(key: Key, ms: float, count: int = 1, *below: Node) -> Node:
    """Return a function with ``ms`` of own time per step; :func:`run` multiplies it."""
    return Node(key, count, round(ms * MS), below)


def _times(node: Node, steps: int) -> Node:
    children = [_times(child, steps) for child in node.children]
    return Node(node.key, node.calls * steps, node.self_ns * steps, children, node.resumes * steps)


def _total(node: Node) -> int:
    return node.self_ns + sum(_total(child) for child in node.children)


def run(
    phases: Mapping[str, float] | None = None,
    *,
    step_ms: float = 100,
    steps: int = STEPS,
    skipped: int = 0,
    inside: Mapping[str, Sequence[Node]] | None = None,
    durations: Sequence[float] = (),
    cpu_ms: Sequence[float] = (),
    threads: Sequence[Node] = (),
    after_ms: float = 0,
    functions: bool = True,
    **fields: Any,
) -> Snapshot:
    """Return a run of ``steps`` measured steps.

    Args:
        phases: sections and their ms per step; the rest is unaccounted.
        step_ms: length of a step.
        steps: number of measured steps.
        skipped: number of earlier steps.
        inside: functions per step, by section; ``""``: in no section.
        durations: lengths of the steps in ms, if they differ.
        cpu_ms: CPU time of each step.
        threads: functions of another thread.
        after_ms: time after the last step.
        functions: False: only sections were recorded.
        fields: of the snapshot.
    """
    phases = HEALTHY if phases is None else phases
    inside = inside or {}
    count = steps + skipped
    builder = Builder()
    nodes = []
    for name, ms in phases.items():
        below = [_times(node, count) for node in inside.get(name, ())]
        own = round(ms * MS) * count - sum(_total(node) for node in below)
        nodes.append(Node(section(name), count, own, below))
    free = [_times(node, count) for node in inside.get("", ())]
    rest = round((step_ms - sum(phases.values())) * MS) * count - sum(_total(n) for n in free)
    rest += round(after_ms * MS)
    if functions:
        builder.thread(Node(py("train", 20, "/x/train.py"), 1, rest, [*nodes, *free]))
    else:
        builder.thread(*nodes)
    if threads:
        builder.thread(*threads, ident=2, name="background")
    taken = [round(ms * MS) for ms in durations] or [round(step_ms * MS)] * steps
    squares = math.fsum((ns / 1e9) ** 2 for ns in taken)
    made = {
        "duration_ns": count * round(step_ms * MS) + round(after_ms * MS),
        "sections": tuple(
            builder.stats(name, [round(ms * MS)] * count) for name, ms in phases.items()
        ),
        "steps": Steps(
            count, skipped, sum(taken), squares, min(taken), max(taken), tuple(taken),
            histogram(taken),
            tuple(
                StepRow(builder.key(section(name)), steps, round(ms * MS) * steps)
                for name, ms in phases.items()
            ),
            series=StepSeries(
                skipped, tuple(range(len(taken))), tuple(taken),
                cpu_ns=tuple(round(ms * MS) for ms in cpu_ms),
            ),
        ),
    }  # fmt: skip
    layer = fields.pop("layer", None)
    if layer is not None:
        made["gpu"] = layer(builder)
    return builder.snapshot(**{**made, **fields})


def gpu_layer(
    busy: float = 0.9,
    idle: Mapping[str, float] | None = None,
    *,
    step_ms: float = 100,
    steps: int = STEPS,
    kernels: Sequence[Any] | None = None,
    h2d_ms: float = 1,
    d2h_ms: float = 0,
    blocked_ms: float = 0,
    **of_timeline: float,
) -> Any:
    """Return a GPU that is busy for a part of each step; ``idle`` in ms per step by section.

    Figures in ms are per step; ``of_timeline`` are fields of the timeline in ms per step.
    """

    def make(builder: Builder) -> GpuSnapshot:
        waited = dict(idle or {})
        left = (1 - busy) * step_ms - sum(waited.values())
        rows = [(builder.key(section(n)), round(ms * steps * MS)) for n, ms in waited.items()]
        if left > 1e-9:
            rows.append((-1, round(left * steps * MS)))
        copied = h2d_ms + d2h_ms
        fields = {"copy_ns": copied, "copy_alone_ns": copied, **of_timeline}
        span = timeline(
            round(busy * step_ms * steps * MS), *rows,
            **{name: round(ms * steps * MS) for name, ms in fields.items()},
        )  # fmt: skip
        ran = kernels
        if ran is None:
            ran = [kernel("ampere_sgemm_128x64_tn", round(busy * step_ms * steps * MS), 100 * steps,
                          blocks_ns=264.0 * round(busy * step_ms * steps * MS))]  # fmt: skip
        copies = [
            activity(what, round(ms * steps * MS), (0, 1), count=steps, size=steps * MIB)
            for what, ms in ((COPY_H2D, h2d_ms), (COPY_D2H, d2h_ms))
            if ms
        ]
        work = [activity(i, k.sum_ns, (0, 1), count=k.count) for i, k in enumerate(ran)]
        hosts = ()
        if blocked_ms:
            from unit.snapshots import waits

            hosts = (waits((0, 1), syncs=steps, blocked_ns=round(blocked_ms * steps * MS)),)
        return gpu(
            *work, *copies, kernels=tuple(ran), host=hosts,
            devices=(h200(whole=span, steps=span, step_count=steps),),
        )  # fmt: skip

    return make


def filled(share: float, **fields: Any) -> MemorySnapshot:
    """Return GPU memory of 40 GB, of which the part ``share`` was reserved at the peak."""
    peak = round(share * 40960 * MIB)
    return memory(
        peak_reserved=peak, peak_allocated=peak, current_allocated=peak // 2,
        current_reserved=peak, steps=STEPS, **fields,
    )  # fmt: skip


def growing(mib: float, count: int = STEPS) -> MemorySnapshot:
    """Return GPU memory that grows by ``mib`` per step."""
    base = 10_000 * MIB
    sizes = [base + round(i * mib * MIB) for i in range(count)]
    samples = tuple(MemorySample(i, s, 36_000 * MIB, s, 36_000 * MIB) for i, s in enumerate(sizes))
    return filled(0.9, samples=samples, first_allocated=sizes[0], last_allocated=sizes[-1])


def loader(data_ms: float, count: int = STEPS, **workers: Any) -> LoaderStats:
    """Return a loader whose batches take ``data_ms``; ``workers`` are fields of its WorkerStats."""
    made = {"workers": 0, "batch_size": 64, "cpus": 16, "firsts": (1, MS), "starts": (1, MS)}
    return LoaderStats(
        "main", "train", count, {"data": (count, round(data_ms * count * MS))},
        workers=WorkerStats(**{**made, **workers}),
    )  # fmt: skip


def loads(ms: float, count: int = STEPS) -> tuple[LoadTime, ...]:
    return (LoadTime(0, count, round(ms * count * MS), round(2 * ms * MS)),)


def operators(step_ms: Mapping[str, float], device: str = "", **kinds: str) -> OperatorSnapshot:
    """Return operators in three steps, by own ms per step on the host, and on the device if any."""
    rows = tuple(
        Operator(
            name, kinds.get(name, "op"), "", 30, round(ms * 3 * MS), round(ms * 3 * MS),
            round(ms * 3 * MS) if device else 0, round(ms * 3 * MS) if device else 0,
            0, 0, 0, 0, 0,
        )
        for name, ms in step_ms.items()
    )  # fmt: skip
    return OperatorSnapshot(device, ((5, 7),), rows=rows)


def found(snapshot: Snapshot | Report) -> dict[str, Finding]:
    """Return findings by rule; fail if a rule failed."""
    report = build_report(snapshot) if isinstance(snapshot, Snapshot) else snapshot
    examination = report.examination
    assert not [reason for _, reason in examination.abstained if "failed" in reason]
    return {f.rule: f for f in examination.findings}


def noted(snapshot: Snapshot) -> dict[str, Finding]:
    """Return notes by rule."""
    return {f.rule: f for f in build_report(snapshot).examination.notes}


def reason(snapshot: Snapshot, rule: str) -> str:
    """Return the reason why a rule abstains."""
    return dict(build_report(snapshot).examination.abstained)[rule]
