"""The tables and lines about the GPU and its memory."""

from collections.abc import Iterable, Mapping, Sequence

from fastprof.names import ends_cut, readable
from fastprof.report.figures import plural
from fastprof.report.kernel_labels import short_kernels
from fastprof.report.model import Report
from fastprof.report.model_gpu import (
    GpuDeviceRow,
    GpuReport,
    GpuTimelineRow,
    KernelRow,
    MemoryReport,
    MemorySectionRow,
)
from fastprof.tables.cells import (
    NAME_WIDTH,
    Table,
    number,
    percent,
    short,
    size,
    size_of,
    torch_size,
    with_percent,
)
from fastprof.tables.layout import without_unknown

#: Default number of rows of the kernel table and of the waiting lines.
KERNEL_ROWS = 20
LINE_ROWS = 10

_MIB = 1 << 20

_NO_TABLE = Table("", (), ())
_YES_NO = {True: "yes", False: "no", None: "unknown"}


def has_gpu(report: Report) -> bool:
    """Return whether a GPU layer was on, so that its columns have figures."""
    return report.gpu is not None and report.gpu.status == "on"


def gpu_lines(report: Report) -> list[str]:
    """Return the lines at the top: GPU load and memory, or the reason why they are unknown."""
    lines = [] if report.gpu is None else [_gpu_line(report.gpu), *unseen_lines(report.gpu)]
    if report.memory is not None:
        lines.append(f"GPU memory: {memory_text(report.memory, ' reserved at the peak')}")
    return lines


def memory_text(memory: MemoryReport, what: str = "") -> str:
    """Return the peak of reserved memory, ``what`` it is, and its share of the device's."""
    share = "" if memory.share is None else f" ({with_percent(memory.share)})"
    return f"{size_of(memory.peak_reserved, memory.total_bytes)}{what}{share}"


def _gpu_line(gpu: GpuReport) -> str:
    if gpu.lacks_device:
        return "GPU: none found"
    if gpu.status != "on":
        reason = readable(gpu.reason, 1000).rstrip(". ") or "it was switched off"
        if reason[1:2].islower():
            reason = reason[0].lower() + reason[1:]
        return f"GPU: n/a, because {reason}."
    names = ", ".join(short(device.name) for device in gpu.devices) or "no device"
    busy = with_percent(gpu.utilization)
    span = "measured steps" if any(device.steps for device in gpu.devices) else "recording"
    return f"GPU: {names}; busy {busy} of the {span}"


def unseen_lines(gpu: GpuReport) -> list[str]:
    """Return the line that says why sections have no GPU time; empty if they have."""
    share = None if gpu.totals is None else gpu.totals.unseen_share
    if share is None:
        return []
    others = ", ".join(dict.fromkeys(readable(p.why, 100) for p in gpu.pauses if p.why))
    others = others or ("another profiler" if gpu.tier == "external" else "")
    beside = f"; CUPTI was also used by {others}" if others else ""
    line = (
        f"GPU: no launch was seen for {with_percent(share)} of the GPU's time, so sections and "
        f"functions have no GPU time{beside}"
    )
    return [line]


def gpu_tables(report: Report) -> list[Table]:
    """Return the tables about the GPU and its memory, in reading order; some have no rows."""
    made = []
    gpu = report.gpu
    if gpu is not None and gpu.status == "on":
        made += [
            _devices(gpu.devices),
            _health(gpu.devices),
            _idle(gpu.devices),
            _totals(gpu),
            kernels(report.kernels, gpu),
            _classes(gpu),
            _copies(gpu),
            _lines(gpu),
            _captured(gpu),
        ]
    if report.memory is not None:
        made += [
            _memory(report.memory),
            _memory_parts(report.memory),
            memory_by_section(report.memory.sections),
        ]
    return made


def _ms(ns: int) -> str:
    return number(ns / 1e6)


def _share(part: int, whole: int) -> str:
    return percent(part / whole if whole else None)


def _devices(devices: Sequence[GpuDeviceRow]) -> Table:
    headers = (
        "device", "over", "wall ms", "busy %", "idle %", "waiting for data %", "copying %",
        "only copying %", "communicating %", "hidden %",
    )  # fmt: skip

    def row(device: GpuDeviceRow, over: str, t: GpuTimelineRow) -> tuple[str, ...]:
        return (
            f"{device.index} {short(device.name)}", over, _ms(t.wall_ns), percent(t.utilization),
            _share(t.idle_ns, t.wall_ns), percent(t.idle_data_share), percent(t.copy_share),
            _share(t.copy_alone_ns, t.wall_ns), _share(t.communication_ns, t.wall_ns),
            percent(t.overlap),
        )  # fmt: skip

    rows = []
    for device in devices:
        rows.append(row(device, "whole recording", device.whole))
        if device.steps is not None:
            rows.append(row(device, plural(device.step_count, "step"), device.steps))
    # Without communication nothing can hide it.
    return without_unknown(
        Table(
            "GPU devices", headers, tuple(rows), left=frozenset({0, 1}),
            spare=("wall ms", "copying %"),
        )
    )  # fmt: skip


def _health(devices: Sequence[GpuDeviceRow]) -> Table:
    headers = (
        "device", "samples", "mean C", "most C", "SM clock MHz", "least MHz", "most MHz",
        "power W", "most W", "throttled %", "by (may overlap)",
    )  # fmt: skip
    rows = []
    for device in devices:
        row = device.health
        if row is not None:
            by = ", ".join(f"{r.reason} {percent(r.share)} %" for r in row.reasons)
            rows.append((
                f"{device.index} {short(device.name)}", str(row.samples),
                number(row.temperature_c, 0), number(row.temperature_max_c, 0),
                number(row.sm_clock_mhz, 0), number(row.sm_clock_min_mhz, 0),
                number(row.sm_clock_max_mhz, 0), number(row.power_w, 0),
                number(row.power_max_w, 0), percent(row.throttled), by,
            ))  # fmt: skip
    title = "GPU temperature, clocks and power (sampled about once a second)"
    return without_unknown(
        Table(
            title, headers, tuple(rows), left=frozenset({0, 10}),
            spare=("samples", "least MHz", "most MHz", "mean C", "power W"),
        )
    )  # fmt: skip


def _idle(devices: Sequence[GpuDeviceRow]) -> Table:
    rows = []
    for device in devices:
        span = device.steps or device.whole
        rows += [
            (str(device.index), short(row.section), _ms(row.idle_ns),
             _share(row.idle_ns, span.wall_ns))
            for row in span.idle
        ]  # fmt: skip
    headers = ("device", "training thread in", "idle ms", "of wall %")
    title = "GPU idle time by section of the training thread (measured steps, else the run)"
    return Table(title, headers, tuple(rows), left=frozenset({0, 1}))


def _totals(gpu: GpuReport) -> Table:
    totals = gpu.totals
    if totals is None or not totals.gpu_ns:
        return _NO_TABLE
    parts = (
        ("in sections", totals.sections_ns),
        ("outside sections", totals.outside_ns),
        ("(other threads)", totals.other_threads_ns),
        ("(unattributed)", totals.unattributed_ns),
        ("all", totals.gpu_ns),
    )
    rows = tuple((name, _ms(ns), _share(ns, totals.gpu_ns)) for name, ns in parts if ns)
    return Table("Where GPU work was launched", ("launched", "gpu ms", "share %"), rows)


def kernel_cells(names: Iterable[str]) -> Mapping[str, str]:
    """Return short names of kernels, which differ if the full ones do."""
    labels = short_kernels(names)
    cut = ends_cut([readable(label, 1000) for label in labels.values()], NAME_WIDTH)
    return dict(zip(labels, cut, strict=True))


def kernels(rows: Sequence[KernelRow], gpu: GpuReport, limit: int = KERNEL_ROWS) -> Table:
    shown = rows[:limit]
    title = f"GPU kernels, most time first ({len(shown)} of {len(rows)}"
    if gpu.small is not None and gpu.small.of_count is not None:
        title += (
            f"; {percent(gpu.small.of_count)} % ran below 100 us, with "
            f"{percent(gpu.small.of_time)} % of the time"
        )
    headers = (
        "kernel", "device", "count", "total ms", "share %", "mean us", "blocks/SM",
        "est. occupancy %", "tensor cores (by name)", "kind", "grid", "block", "registers",
    )  # fmt: skip
    names = kernel_cells(r.name for r in rows)
    cells = tuple(
        (
            names[r.name], "" if r.device is None else str(r.device), str(r.count),
            number(r.total_ms), percent(r.share), number(r.mean_us), _blocks(r),
            percent(r.occupancy), _YES_NO[r.tensor_cores], r.kind,
            _size(r.grid) + ("*" if r.grid_varied else ""), _size(r.block),
            "n/a" if r.registers is None else str(r.registers),
        )
        for r in shown
    )  # fmt: skip
    # A kernel has a row per device.
    one = ("device",) if len({r.device for r in shown}) < 2 else ()
    return Table(
        title + ")", headers, cells,
        spare=("registers", "block", "grid", "kind", *one, "tensor cores (by name)",
               "est. occupancy %"),
        last=("blocks/SM",), ends=frozenset({0}), full=tuple(r.name for r in shown),
    )  # fmt: skip


def _blocks(row: KernelRow) -> str:
    poor = " poor" if row.blocks_rating == "poor" else ""
    return number(row.blocks_per_sm, 2) + poor


def _size(value: tuple[int, int, int] | None) -> str:
    return "n/a" if value is None else "x".join(map(str, value))


def _classes(gpu: GpuReport) -> Table:
    rows = tuple(
        (r.name, str(r.count), _ms(r.total_ns), percent(r.share)) for r in gpu.classes
    )  # fmt: skip
    return Table("GPU kernels by kind (by name)", ("kind", "count", "total ms", "share %"), rows)


def _copies(gpu: GpuReport) -> Table:
    use = gpu.use
    if use is None or not (use.copies or use.memset_bytes):
        return _NO_TABLE
    parts = (
        ("host to device", use.h2d_bytes),
        ("device to host", use.d2h_bytes),
        ("within a device", use.d2d_bytes),
        ("between devices", use.p2p_bytes),
        ("other copies", use.other_bytes),
        ("memset", use.memset_bytes),
    )
    rows = tuple((name, size(count)) for name, count in parts if count)
    title = (
        f"GPU copies: {_ms(use.copy_ns)} ms, of which {_ms(use.transfer_ns)} ms between host and "
        "device"
    )
    return Table(title, ("direction", "size"), rows)


def _lines(gpu: GpuReport) -> Table:
    shown = gpu.lines[:LINE_ROWS]
    headers = ("line", "section", "waits", "blocked ms", "blocked ms per step")
    rows = tuple(
        (short(line.text), short(line.section or ""), str(line.syncs), _ms(line.blocked_ns),
         number(line.per_step_ms))
        for line in shown
    )  # fmt: skip
    title = f"Where the host waits for the GPU ({len(shown)} of {plural(len(gpu.lines), 'line')})"
    return Table(title, headers, rows, left=frozenset({0, 1}))


def _captured(gpu: GpuReport) -> Table:
    rows = tuple(
        (short(r.replayed_in), short(r.captured_in), str(r.kernels), _ms(r.gpu_ns))
        for r in gpu.captured
    )
    headers = ("replayed in", "captured in", "kernels", "gpu ms")
    return Table("CUDA graphs", headers, rows, left=frozenset({0, 1}))


def _memory(memory: MemoryReport) -> Table:
    def mib(size: float | None) -> str:
        return number(None if size is None else size / _MIB)

    rows = (
        ("total MiB", mib(memory.total_bytes)),
        ("peak reserved MiB", mib(memory.peak_reserved)),
        ("of total %", percent(memory.share)),
        ("peak allocated MiB", mib(memory.peak_allocated)),
        ("now reserved MiB", mib(memory.current_reserved)),
        ("now allocated MiB", mib(memory.current_allocated)),
        ("growth MiB per step", mib(memory.slope_bytes_per_step)),
        ("cudaMalloc per step", number(memory.device_allocs_per_step, 2)),
        ("cudaFree per step", number(memory.device_frees_per_step, 2)),
        ("retries", str(memory.retries)),
        ("out of memory", str(memory.ooms)),
    )
    return Table(f"GPU memory (PyTorch's allocator, device {memory.device})",
                 ("figure", "value"), rows)  # fmt: skip


def _memory_parts(memory: MemoryReport) -> Table:
    parts = memory.parts
    if parts is None:
        return _NO_TABLE
    named = (
        ("parameters", parts.parameters),
        ("gradients", parts.gradients),
        ("optimizer state", parts.optimizer_state),
        ("activations and other", parts.activations),
        ("allocated", memory.peak_allocated),
    )
    rows = tuple(
        (name, number(count / _MIB), _share(count, memory.peak_allocated),
         number(count / parts.parameters if parts.parameters else None, 2))
        for name, count in named
    )  # fmt: skip
    headers = ("held by", "MiB", "share %", "times the parameters")
    return Table("GPU memory at its peak", headers, rows)


def memory_by_section(rows: Sequence[MemorySectionRow], row_limit: int = 10) -> Table:
    """Return the memory table in the layout of ``key_averages().table()``.

    Sorted by ``self_cuda_memory_usage``, the memory that each section took itself; host memory is
    not recorded.
    """

    def order(row: MemorySectionRow) -> tuple[bool, int]:
        own = row.self_grown_bytes
        return own is None, 0 if own is None else -own

    cells = tuple(
        (short(r.name), "n/a", torch_size(r.grown_bytes),
         torch_size(r.self_grown_bytes))
        for r in sorted(rows, key=order)[:row_limit]
    )  # fmt: skip
    headers = ("Name", "CPU Mem", "CUDA Mem", "Self CUDA Mem")
    return Table("GPU memory taken and kept by sections", headers, cells)
