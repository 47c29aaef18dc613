"""Hand-made snapshots: trees written as nested tuples, with round numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastprof.snapshot import (
    Calibration,
    EventCost,
    Histogram,
    Key,
    NodeTable,
    SectionStats,
    Snapshot,
    ThreadTree,
)
from fastprof.snapshot.gpu import (
    GpuActivity,
    GpuDevice,
    GpuHost,
    GpuKernel,
    GpuSnapshot,
    GpuTimeline,
)
from fastprof.snapshot.gpu_health import REASONS, GpuHealth, HealthFigure, ThrottleSamples
from fastprof.snapshot.memory import MemorySnapshot

MS = 1_000_000
US = 1_000
MIB = 1 << 20

ROOT = Key("root", "", 0, "(root)", "(root)")
TRUNCATED = Key("truncated", "", 0, "(truncated)", "(truncated)")


def py(name: str, line: int = 1, file: str = "prog.py", qualname: str | None = None) -> Key:
    return Key("python", file, line, name, name if qualname is None else qualname)


def c(name: str) -> Key:
    label = f"<built-in method builtins.{name}>"
    return Key("c", "~", 0, label, name)


def method(name: str) -> Key:
    return Key("c", "~", 0, f"<method '{name}' of 'list' objects>", f"list.{name}")


def type_(name: str) -> Key:
    return Key("type", "~", 0, f"<class '{name}'>", name)


def section(name: str) -> Key:
    return Key("section", "", 0, name, name)


@dataclass
class Node:
    """``Node(key, calls, self_ns, children)``; ``resumes`` by keyword."""

    key: Key
    calls: int = 1
    self_ns: int = 0
    children: Sequence[Node] = ()
    resumes: int = 0


@dataclass
class Builder:
    """Collects keys in order of first use and turns trees into columns."""

    keys: list[Key] = field(default_factory=lambda: [ROOT])
    threads: list[ThreadTree] = field(default_factory=list)

    def key(self, key: Key) -> int:
        if key not in self.keys:
            self.keys.append(key)
        return self.keys.index(key)

    def thread(
        self,
        *children: Node,
        root_ns: int = 0,
        ident: int = 1,
        name: str = "MainThread",
        ended: bool = False,
    ) -> Builder:
        columns: list[list[int]] = [[-1], [0], [0], [0], [root_ns]]
        todo = [(0, node) for node in reversed(children)]
        while todo:
            above, node = todo.pop()
            row = (above, self.key(node.key), node.calls, node.resumes, node.self_ns)
            here = len(columns[0])
            for column, value in zip(columns, row, strict=True):
                column.append(value)
            todo += [(here, child) for child in reversed(node.children)]
        nodes = NodeTable(*(tuple(column) for column in columns))
        self.threads.append(ThreadTree(ident, name, ended, nodes))
        return self

    def snapshot(self, **fields: Any) -> Snapshot:
        total = max((sum(t.nodes.self_ns) for t in self.threads), default=0)
        fields = {"meta": {"python": "3.12.1"}, "duration_ns": total, **fields}
        return Snapshot(keys=tuple(self.keys), threads=tuple(self.threads), **fields)

    def stats(self, name: str, durations: Sequence[int], thread: int = 0, **fields: Any) -> Any:
        """Return SectionStats of entries that took ``durations`` ns, none inside another."""
        total = sum(durations)
        made: dict[str, Any] = {
            "key": self.key(section(name)),
            "thread": thread,
            "count": len(durations),
            "sum_ns": total,
            "outer_ns": total,
            "min_ns": min(durations, default=0),
            "max_ns": max(durations, default=0),
            "errors": 0,
            "open": 0,
            "hist": histogram(durations),
        }
        return SectionStats(**{**made, **fields})


def bucket(value: int) -> tuple[int, int]:
    """Return the recorder's bucket of a value: exact below 64, then 64 per power of two."""
    if value < 64:
        return value, value + 1
    width = 1 << (value.bit_length() - 7)
    low = value // width * width
    return low, low + width


def histogram(values: Sequence[int]) -> Histogram:
    counts: dict[tuple[int, int], int] = {}
    for value in values:
        counts[bucket(value)] = counts.get(bucket(value), 0) + 1
    return Histogram(tuple((low, high, n) for (low, high), n in sorted(counts.items())))


def tree(*children: Node, root_ns: int = 0, **fields: Any) -> Snapshot:
    """Return a snapshot of one thread."""
    return Builder().thread(*children, root_ns=root_ns).snapshot(**fields)


def cost(
    python: tuple[float, float] = (0, 0),
    resume: tuple[float, float] = (0, 0),
    c: tuple[float, float] = (0, 0),
    method: tuple[float, float] = (0, 0),
    *,
    implicit: tuple[float, float] | None = None,
    constructor: tuple[float, float] | None = None,
    init: tuple[float, float] | None = None,
    general: tuple[float, float] | None = None,
    unpacked: tuple[float, float] | None = None,
    c_general: tuple[float, float] | None = None,
    fed: tuple[float, float] | None = None,
    made: float = 0,
    nested: float = 0,
    text: tuple[float, float] | None = None,
) -> Calibration:
    """Return costs by kind; the defaults are the costs of ``python``, ``c`` or ``resume``."""
    return Calibration(
        python=EventCost(*python),
        resume=EventCost(*resume),
        c=EventCost(*c),
        method=EventCost(*method),
        implicit=EventCost(*(implicit or python)),
        constructor=EventCost(*(constructor or c)),
        init=EventCost(*(init or python)),
        general=EventCost(*(general or python)),
        unpacked=EventCost(*(unpacked or python)),
        c_general=EventCost(*(c_general or c)),
        fed=EventCost(*(fed or resume)),
        made=EventCost(0, made),
        nested=EventCost(0, nested),
        text=EventCost(*(text or constructor or c)),
    )


#: The launch site of an activity without a site.
NOWHERE = (-1, -1)


def kernel(name: str, sum_ns: int, count: int = 1, **fields: Any) -> GpuKernel:
    """Return one configuration of a kernel: 256 threads, 32 registers, one block per SM."""
    made: dict[str, Any] = {
        "device": 0, "block_x": 256, "block_y": 1, "block_z": 1, "registers": 32,
        "static_shared": 0, "dynamic_shared": 0, "grid_x": 132, "grid_y": 1, "grid_z": 1,
        "grid_varied": False, "min_ns": sum_ns // max(1, count),
        "max_ns": -(-sum_ns // max(1, count)), "small_count": 0, "small_ns": 0,
        "blocks_ns": 132.0 * sum_ns,
    }  # fmt: skip
    return GpuKernel(name=name, count=count, sum_ns=sum_ns, **{**made, **fields})


def activity(
    what: int,
    sum_ns: int,
    site: tuple[int, int] = NOWHERE,
    *,
    how: int = 0,
    via: tuple[int, int] = NOWHERE,
    count: int = 1,
    size: int = 0,
) -> GpuActivity:
    return GpuActivity(*site, *via, how, what, count, sum_ns, size)


def waits(
    site: tuple[int, int],
    *,
    how: int = 0,
    via: tuple[int, int] = NOWHERE,
    launches: int = 0,
    delays: int = 0,
    delay_ns: int = 0,
    delay_max_ns: int = 0,
    syncs: int = 0,
    blocked_ns: int = 0,
) -> GpuHost:
    return GpuHost(
        *site, *via, how, launches, delays, delay_ns, delay_max_ns, syncs, blocked_ns
    )  # fmt: skip


def timeline(busy_ns: int, *idle: tuple[int, int], **fields: int) -> GpuTimeline:
    wall = busy_ns + sum(ns for _, ns in idle)
    return GpuTimeline(wall, busy_ns, **{"kernel_ns": busy_ns, "compute_ns": busy_ns, **fields},
                       idle=tuple(idle))  # fmt: skip


def h200(**fields: Any) -> GpuDevice:
    made: dict[str, Any] = {
        "index": 0, "name": "NVIDIA H200", "multiprocessors": 132, "memory_bytes": 141 << 30,
        "threads_per_multiprocessor": 2048, "blocks_per_multiprocessor": 32,
        "registers_per_multiprocessor": 65536, "shared_bytes_per_multiprocessor": 233472,
        "warp_size": 32, "capability": (9, 0),
    }  # fmt: skip
    return GpuDevice(**{**made, **fields})


def health(
    temperature: Sequence[int] | None = (60, 62, 70),
    clock: Sequence[int] | None = (1980, 1980, 1410),
    power: Sequence[int] | None = (350_000, 360_000, 700_000),
    *,
    judged: int = 3,
    **reasons: int,
) -> GpuHealth:
    """Return samples of a device (C, MHz, mW), some of the ``judged`` ones throttled.

    No sample has two reasons.
    """

    def figure(values: Sequence[int] | None) -> HealthFigure | None:
        if values is None:
            return None
        return HealthFigure(len(values), sum(values), min(values), max(values), values[-1])

    throttling = None
    if judged:
        throttled = sum(reasons.values())
        slowed = throttled - reasons.get("sw_power_cap", 0)
        counts = {name: reasons.get(name, 0) for name in REASONS}
        throttling = ThrottleSamples(judged, throttled, slowed, counts)
    return GpuHealth(figure(temperature), figure(clock), figure(power), throttling)


def gpu(*activities: GpuActivity, **fields: Any) -> GpuSnapshot:
    """Return a GPU layer that was on and saw ``activities``."""
    made: dict[str, Any] = {"status": "on", "tier": "callbacks", "devices": (h200(),)}
    total = sum(a.sum_ns for a in activities)
    return GpuSnapshot(**{**made, "activity": activities, "sum_ns": total, **fields})


def memory(**fields: Any) -> MemorySnapshot:
    made: dict[str, Any] = {
        "device": 0, "total_bytes": 40960 * MIB, "current_allocated": 10240 * MIB,
        "current_reserved": 12288 * MIB, "peak_allocated": 20480 * MIB,
        "peak_reserved": 24576 * MIB,
    }  # fmt: skip
    return MemorySnapshot(**{**made, **fields})


def replaced(snapshot: Snapshot, **fields: Any) -> Snapshot:
    return replace(snapshot, **fields)


def by_name(rows: Sequence[Any]) -> Mapping[str, Any]:
    found = {row.name: row for row in rows}
    assert len(found) == len(rows)
    return found
