"""Kernel tables: of the whole recording, by class, and of one section or function."""

from collections.abc import Collection, Iterable

from fastprof.report.gpu_tree import where
from fastprof.report.kernel_names import kind_of, uses_tensor_cores
from fastprof.report.model_gpu import (
    OTHER_KERNELS_NAME,
    KernelClassRow,
    KernelRow,
    KernelUse,
    SmallKernels,
)
from fastprof.report.occupancy import achieved_occupancy, blocks_per_sm
from fastprof.report.rows import FunctionRow, key_of
from fastprof.report.tree import at_or_below
from fastprof.snapshot import Snapshot
from fastprof.snapshot.gpu import OTHER_KERNELS, GpuKernel, GpuSnapshot


def kernel_rows(gpu: GpuSnapshot) -> tuple[KernelRow, ...]:
    """Return one row per kernel name and device, most time first."""
    parts: dict[tuple[str, int], list[GpuKernel]] = {}
    for kernel in gpu.kernels:
        parts.setdefault((kernel.name, kernel.device), []).append(kernel)
    table_ns = sum(k.sum_ns for k in gpu.kernels)
    # Kernels that the table had no room for.  Activities without a kernel do not tell: without room
    # for a site, they also stand for kernels that are in the table.
    launched = [a for a in gpu.activity if a.what >= 0 or a.what == OTHER_KERNELS]
    lost_count = sum(a.count for a in launched) - sum(k.count for k in gpu.kernels)
    lost_ns = max(0, sum(a.sum_ns for a in launched) - table_ns)
    total_ns = table_ns + lost_ns
    devices = {device.index: device for device in gpu.devices}
    rows = []
    for (name, index), kernels in parts.items():
        device = devices.get(index)
        count = sum(k.count for k in kernels)
        sum_ns = sum(k.sum_ns for k in kernels)
        ran = [k for k in kernels if k.count]
        main = max(kernels, key=lambda k: k.sum_ns)
        rows.append(
            KernelRow(
                name=name,
                device=index,
                kind=kind_of(name),
                tensor_cores=uses_tensor_cores(name),
                count=count,
                total_ns=sum_ns,
                share=sum_ns / total_ns if total_ns else None,
                mean_us=sum_ns / count / 1e3 if count else None,
                min_us=min((k.min_ns for k in ran), default=0) / 1e3 if ran else None,
                max_us=max((k.max_ns for k in ran), default=0) / 1e3 if ran else None,
                small_count=sum(k.small_count for k in kernels),
                small_ns=sum(k.small_ns for k in kernels),
                blocks_per_sm=blocks_per_sm(device, kernels),
                occupancy=achieved_occupancy(device, kernels),
                block=(main.block_x, main.block_y, main.block_z),
                grid=(main.grid_x, main.grid_y, main.grid_z),
                grid_varied=main.grid_varied,
                registers=main.registers,
                shared_bytes=main.static_shared + main.dynamic_shared,
                configurations=len(kernels),
            )
        )
    if lost_count > 0:
        rows.append(_lost_row(lost_count, lost_ns, total_ns))
    return tuple(sorted(rows, key=lambda r: (-r.total_ns, r.name, r.device or 0)))


def _lost_row(count: int, sum_ns: int, total_ns: int) -> KernelRow:
    return KernelRow(
        OTHER_KERNELS_NAME, None, "other", None, count, sum_ns,
        sum_ns / total_ns if total_ns else None, sum_ns / count / 1e3 if count else None,
        *(None,) * 11, configurations=0,
    )  # fmt: skip


def class_rows(rows: Iterable[KernelRow]) -> tuple[KernelClassRow, ...]:
    """Return the classes of kernels, most time first; they add up to all kernels."""
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        count, ns = counts.get(row.kind, (0, 0))
        counts[row.kind] = (count + row.count, ns + row.total_ns)
    total_ns = sum(ns for _, ns in counts.values())
    made = [
        KernelClassRow(kind, count, ns, ns / total_ns if total_ns else None)
        for kind, (count, ns) in counts.items()
    ]
    return tuple(sorted(made, key=lambda r: (-r.total_ns, r.name)))


def small_kernels(gpu: GpuSnapshot) -> SmallKernels:
    """Return the share of kernels that ran for less than 100 us."""
    count = sum(k.count for k in gpu.kernels)
    ns = sum(k.sum_ns for k in gpu.kernels)
    small = sum(k.small_count for k in gpu.kernels)
    small_ns = sum(k.small_ns for k in gpu.kernels)
    return SmallKernels(
        count=small,
        of_count=small / count if count else None,
        of_time=small_ns / ns if ns else None,
    )


def launched_below(snapshot: Snapshot, keys: Collection[int]) -> tuple[KernelUse, ...]:
    """Return the kernels launched at or below nodes with one of ``keys``, most time first.

    Inherited work counts to the thread that it was inherited from and to the launching
    thread's own functions.
    """
    gpu = snapshot.gpu
    if gpu is None or not keys:
        return ()
    marked = [key in keys for key in range(len(snapshot.keys))]
    inside = [at_or_below(thread.nodes, marked) for thread in snapshot.threads]
    found: dict[tuple[str, int | None], tuple[int, int]] = {}
    for row in gpu.activity:
        if row.what < 0 and row.what != OTHER_KERNELS:
            continue
        if not any(site and inside[site[0]][site[1]] for site in where(row)):
            continue
        name, device = OTHER_KERNELS_NAME, None
        if row.what >= 0:
            name, device = gpu.kernels[row.what].name, gpu.kernels[row.what].device
        count, ns = found.get((name, device), (0, 0))
        found[(name, device)] = (count + row.count, ns + row.sum_ns)
    total_ns = sum(ns for _, ns in found.values())
    rows = [
        KernelUse(
            name=name,
            device=device,
            kind=kind_of(name),
            tensor_cores=uses_tensor_cores(name),
            count=count,
            total_ns=ns,
            share=ns / total_ns if total_ns else None,
            mean_us=ns / count / 1e3 if count else None,
        )
        for (name, device), (count, ns) in found.items()
    ]
    return tuple(sorted(rows, key=lambda r: (-r.total_ns, r.name, r.device or 0)))


def kernels_in(snapshot: Snapshot, section: str) -> tuple[KernelUse, ...]:
    """Return the kernels launched inside the section recorded as ``section``."""
    own = {
        i for i, key in enumerate(snapshot.keys) if key.kind == "section" and key.name == section
    }
    return launched_below(snapshot, own)


def kernels_of(snapshot: Snapshot, function: FunctionRow) -> tuple[KernelUse, ...]:
    """Return the kernels launched by the functions with the same text as ``function``."""
    wanted = key_of(function)
    return launched_below(snapshot, {i for i, key in enumerate(snapshot.keys) if key == wanted})
