"""The GPU's part of a report: devices, totals, waiting lines, replayed graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from fastprof.report.gpu_tree import Use, sums_by_site, total_use, uses, where
from fastprof.report.health import health_row
from fastprof.report.kernels import class_rows, small_kernels
from fastprof.report.model_gpu import (
    BlockingLine,
    CapturedRow,
    GpuDeviceRow,
    GpuReport,
    GpuTimelineRow,
    GpuTotals,
    GpuUse,
    IdleRow,
    KernelRow,
    PauseRow,
    mostly_unseen,
)
from fastprof.report.phase_names import DATA, H2D
from fastprof.snapshot import Snapshot
from fastprof.snapshot.gpu import (
    HOW_CAPTURED,
    HOW_OTHER,
    OTHER_KERNELS,
    GpuDevice,
    GpuSnapshot,
    GpuTimeline,
)

#: Sections in which the training thread fetches data or moves it to the GPU.
WAITING_FOR_DATA = frozenset({*DATA, *H2D})

NO_SECTION = "(no section)"

_FUNCTIONS = ("python", "c", "type")


def measured(snapshot: Snapshot) -> GpuSnapshot | None:
    """Return the GPU layer of a recording; None: it was off."""
    gpu = snapshot.gpu
    return gpu if gpu is not None and gpu.status == "on" else None


class GpuTables:
    """Work by section and by function, for the rows of those tables.

    Holds None for everything without a GPU layer, or if most launches were not seen, which
    distinguishes "not measured" from "none".
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        gpu = measured(snapshot)
        self._sums = {} if gpu is None else sums_by_site(gpu)
        #: Whether there are figures.
        self.known = gpu is not None and not mostly_unseen(gpu.sum_ns, _unattributed(gpu)[1])

    def by_group(
        self, groups: Sequence[Sequence[int]], *, own_path: bool = True
    ) -> Mapping[int, Use] | None:
        """Return the work per group of a view; see :func:`fastprof.report.gpu_tree.uses`."""
        return self.seen_by_group(groups, own_path=own_path) if self.known else None

    def seen_by_group(
        self, groups: Sequence[Sequence[int]], *, own_path: bool = True
    ) -> Mapping[int, Use]:
        """Return the work whose launch was seen, however little of all work that is."""
        return uses(self._snapshot, self._sums, groups, own_path=own_path)

    def total(self) -> GpuUse:
        """Return all work together."""
        return total_use(self._sums.values())


def use_of(table: Mapping[int, Use] | None, group: int) -> GpuUse | None:
    """Return a row's work: None if nothing was measured, zeros if there was none."""
    if table is None:
        return None
    return table.get(group, Use()).freeze()


def gpu_report(
    snapshot: Snapshot,
    tables: GpuTables,
    groups: Sequence[Sequence[int]],
    kernels: Sequence[KernelRow],
    steps: int,
) -> GpuReport | None:
    """Make the report's GPU part.

    Args:
        groups: per thread and node the group of the sections table.
        steps: how many steps the work covers.
    """
    gpu = snapshot.gpu
    if gpu is None:
        return None
    reason, other = gpu.reason, snapshot.meta.get("torch_gpus")
    if other and gpu.status != "on":
        reason = f"fastprof observes NVIDIA's GPUs only, and PyTorch is built for {other}"
    head = (gpu.status, reason, gpu.tier, gpu.cupti_version, gpu.driver_version)
    if gpu.status != "on":
        return GpuReport(*head)
    names = _Names(snapshot)
    return GpuReport(
        *head,
        devices=tuple(_device(snapshot, device) for device in _used(gpu.devices)),
        totals=_totals(gpu, tables.seen_by_group(groups)),
        use=tables.total(),
        delay_max_ns=max((h.delay_max_ns for h in gpu.host if h.delays), default=None),
        classes=class_rows(kernels),
        small=small_kernels(gpu),
        lines=_lines(gpu, names, steps),
        captured=_captured(gpu, names),
        paused_ns=gpu.paused_ns,
        pauses=tuple(PauseRow(why, ns) for why, ns in gpu.pauses),
        health_reason=gpu.health_reason,
    )


def _used(devices: Sequence[GpuDevice]) -> Sequence[GpuDevice]:
    """Return the devices that did anything; all of them if none did.

    Each rank of a job commonly sees all devices of the machine and works on one: the others are
    busy for other ranks, which this process cannot see.
    """
    return [device for device in devices if device.whole.busy_ns] or devices


def _device(snapshot: Snapshot, device: GpuDevice) -> GpuDeviceRow:
    return GpuDeviceRow(
        index=device.index,
        name=device.name,
        capability=f"{device.capability[0]}.{device.capability[1]}",
        multiprocessors=device.multiprocessors,
        memory_bytes=device.memory_bytes,
        step_count=device.step_count,
        whole=_timeline(snapshot, device.whole),
        steps=_timeline(snapshot, device.steps) if device.step_count else None,
        health=health_row(device.health),
    )


def _timeline(snapshot: Snapshot, timeline: GpuTimeline) -> GpuTimelineRow:
    idle: dict[str, int] = {}
    for key, ns in timeline.idle:
        name = NO_SECTION if key < 0 else snapshot.keys[key].name
        idle[name] = idle.get(name, 0) + ns
    return GpuTimelineRow(
        **{f.name: getattr(timeline, f.name) for f in fields(timeline) if f.name != "idle"},
        idle_ns=sum(idle.values()),
        idle_data_ns=sum(ns for name, ns in idle.items() if name in WAITING_FOR_DATA),
        idle=tuple(
            IdleRow(name, ns) for name, ns in sorted(idle.items(), key=lambda item: -item[1]) if ns
        ),
    )


def _totals(gpu: GpuSnapshot, sections: Mapping[int, Use]) -> GpuTotals:
    known = [use.own for use in sections.values()]
    known_ns = sum(own["gpu_ns"] for own in known)
    in_sections = sum(use.own["gpu_ns"] for group, use in sections.items() if group >= 0)
    other = [a for a in gpu.activity if a.how == HOW_OTHER]
    lost_count, lost_ns = _unattributed(gpu)
    return GpuTotals(
        gpu_ns=gpu.sum_ns,
        sections_ns=in_sections,
        outside_ns=known_ns - in_sections,
        other_threads_ns=sum(a.sum_ns for a in other),
        other_threads_count=sum(a.count for a in other),
        unattributed_ns=lost_ns,
        unattributed_count=lost_count,
        inherited_ns=sum(own["inherited_ns"] for own in known),
        replayed_ns=sum(own["replayed_ns"] for own in known),
    )


def _unattributed(gpu: GpuSnapshot) -> tuple[int, int]:
    """Return number and ns of activities without a known launch, or without the site of it."""
    lost = [a for a in gpu.activity if a.how != HOW_OTHER and where(a)[0] is None]
    return sum(a.count for a in lost), sum(a.sum_ns for a in lost)


class _Names:
    """Names of the innermost section and function of nodes; walks each thread once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._found: dict[int, list[tuple[int, int]]] = {}

    def of(self, thread: int, node: int) -> tuple[str | None, str | None]:
        """Return the section and the function of a site."""
        if thread < 0:
            return None, None
        if thread not in self._found:
            self._found[thread] = self._walk(thread)
        section, function = self._found[thread][node]
        keys = self._snapshot.keys
        return (
            keys[section].name if section >= 0 else None,
            keys[function].qualname or keys[function].name if function >= 0 else None,
        )

    def label(self, thread: int, node: int) -> str:
        """Return both in one string."""
        section, function = self.of(thread, node)
        return " / ".join(part for part in (section, function) if part) or "(not known)"

    def _walk(self, thread: int) -> list[tuple[int, int]]:
        nodes = self._snapshot.threads[thread].nodes
        out = [(-1, -1)] * len(nodes)
        for i in range(1, len(nodes)):
            section, function = out[nodes.parent[i]]
            kind = self._snapshot.keys[nodes.key[i]].kind
            if kind == "section":
                section = nodes.key[i]
            elif kind in _FUNCTIONS:
                function = nodes.key[i]
            out[i] = (section, function)
        return out


def _lines(gpu: GpuSnapshot, names: _Names, steps: int) -> tuple[BlockingLine, ...]:
    found: dict[tuple[str, int, str], list[int]] = {}
    sections: dict[tuple[str, int, str], dict[str | None, int]] = {}
    for row in gpu.lines:
        key = (row.file, row.line, row.function)
        total = found.setdefault(key, [0, 0])
        total[0] += row.syncs
        total[1] += row.blocked_ns
        by_section = sections.setdefault(key, {})
        section, _ = names.of(row.thread, row.node)
        by_section[section] = by_section.get(section, 0) + row.blocked_ns
    made = [
        BlockingLine(
            file=key[0],
            line=key[1],
            function=key[2],
            section=max(sections[key].items(), key=lambda item: item[1])[0],
            syncs=syncs,
            blocked_ns=ns,
            per_step_ms=ns / steps / 1e6 if steps else None,
        )
        for key, (syncs, ns) in found.items()
    ]
    return tuple(sorted(made, key=lambda r: (-r.blocked_ns, r.file, r.line, r.function)))


def _captured(gpu: GpuSnapshot, names: _Names) -> tuple[CapturedRow, ...]:
    found: dict[tuple[str, str], list[int]] = {}
    for row in gpu.activity:
        if row.how != HOW_CAPTURED:
            continue
        key = (names.label(row.thread, row.node), names.label(row.via_thread, row.via_node))
        total = found.setdefault(key, [0, 0])
        if row.what >= 0 or row.what == OTHER_KERNELS:
            total[0] += row.count
        total[1] += row.sum_ns
    made = [CapturedRow(*key, kernels=count, gpu_ns=ns) for key, (count, ns) in found.items()]
    return tuple(sorted(made, key=lambda r: (-r.gpu_ns, r.replayed_in, r.captured_in)))
