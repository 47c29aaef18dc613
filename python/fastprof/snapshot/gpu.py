"""The GPU's part of a snapshot: what CUPTI's records add up to.

Times are integer nanoseconds of CUPTI's clock, never estimated.  Every activity (kernel,
copy, memset) is counted in exactly one row of ``activity``, so those rows add up to
``sum_ns``.

A *site* is a thread (index into ``Snapshot.threads``) and a row of its tree: where the
work was given to the device, not where the host was when it ran.  (-1, -1) is no site.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fastprof.snapshot.fields import (
    MAX_INT,
    as_dict,
    as_float,
    as_int,
    as_ints,
    as_list,
    as_str,
    fail,
    show,
)
from fastprof.snapshot.gpu_health import GpuHealth, health_dict, read_health
from fastprof.snapshot.run_phases import STEPS

#: How the site of an activity was found.  With OWN the launching thread stood there.
#: With INHERITED that thread had no section of its own, and ``via`` is the site in the
#: thread whose work it did (autograd's threads work for the one in ``backward()``).
#: With CAPTURED a CUDA graph was replayed at the site and captured at ``via``.  Of OTHER
#: only the thread is known to be nobody's, of UNKNOWN not even the launch.
HOW_OWN, HOW_INHERITED, HOW_CAPTURED, HOW_OTHER, HOW_UNKNOWN = range(5)

#: What an activity is if not a kernel of the table; H, D, P: host, device, peer.
COPY_H2D, COPY_D2H, COPY_D2D, COPY_P2P, COPY_H2H, COPY_OTHER, MEMSET, OTHER_KERNELS = range(
    -1, -9, -1
)


@dataclass(frozen=True, slots=True)
class GpuTimeline:
    """When a device was busy, and what the training thread was in while it was not.

    ``kernel_ns`` is time with at least one kernel, split by kind into ``compute_ns`` and
    ``communication_ns`` with ``overlap_ns`` in both; ``copy_ns`` is time with at least
    one copy or memset, ``copy_alone_ns`` the part of it without any kernel.  ``idle`` is
    (key of the training thread's outermost section or -1, ns); wall = busy + idle.
    """

    wall_ns: int = 0
    busy_ns: int = 0
    kernel_ns: int = 0
    compute_ns: int = 0
    communication_ns: int = 0
    overlap_ns: int = 0
    copy_ns: int = 0
    copy_alone_ns: int = 0
    idle: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A device, and its timeline over the whole recording and over the measured steps.

    Its properties are as the driver names them, 0 where it does not tell.  ``health`` is
    None if nothing is known of it.
    """

    index: int
    name: str
    multiprocessors: int
    memory_bytes: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    registers_per_multiprocessor: int
    shared_bytes_per_multiprocessor: int
    warp_size: int
    capability: tuple[int, int]
    whole: GpuTimeline = GpuTimeline()
    steps: GpuTimeline = GpuTimeline()
    step_count: int = 0
    health: GpuHealth | None = None


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """Launches of one kernel with one configuration.

    ``registers`` are per thread, shared memory is bytes per block.  The grid is the last
    one if ``grid_varied``.  ``small_*`` are launches that ran below 100 us.
    ``blocks_ns`` adds up blocks x duration of every launch.
    """

    name: str
    device: int
    block_x: int
    block_y: int
    block_z: int
    registers: int
    static_shared: int
    dynamic_shared: int
    grid_x: int
    grid_y: int
    grid_z: int
    grid_varied: bool
    count: int
    sum_ns: int
    min_ns: int
    max_ns: int
    small_count: int
    small_ns: int
    blocks_ns: float


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """Activities of one kind given to the device at one site.

    ``what`` is an index into ``GpuSnapshot.kernels`` or one of the negative constants
    above; ``bytes`` is 0 for kernels.
    """

    thread: int
    node: int
    via_thread: int
    via_node: int
    how: int
    what: int
    count: int
    sum_ns: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GpuHost:
    """The host's side at one site.

    ``launches`` are calls that gave the device work; ``delays`` is of how many activities
    the time from launch to start is known, ``delay_ns`` its sum.  ``syncs`` are calls in
    which the host waited for the device, ``blocked_ns`` how long.
    """

    thread: int
    node: int
    via_thread: int
    via_node: int
    how: int
    launches: int
    delays: int
    delay_ns: int
    delay_max_ns: int
    syncs: int
    blocked_ns: int


@dataclass(frozen=True, slots=True)
class GpuLine:
    """A source line in which the host waited; a part of what ``GpuHost`` holds."""

    thread: int
    node: int
    file: str
    line: int
    function: str
    syncs: int
    blocked_ns: int


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """What was recorded of the GPU.

    ``status`` is ``on``, or ``off`` when nothing could be collected and ``reason`` says
    why; with ``on`` a reason says what had to be done differently.  ``tier`` is
    ``callbacks`` or ``external``: how launches were tied to sites.  ``paused_ns`` is time
    in which another profiler had the records, ``pauses`` who and how long.
    ``health_reason`` says why the devices' health is not known, or no further than some
    moment: then ``health_hung`` is true.
    """

    status: str
    reason: str = ""
    tier: str | None = None
    cupti_version: int | None = None
    cupti_path: str | None = None
    driver_version: int | None = None
    devices: tuple[GpuDevice, ...] = ()
    kernels: tuple[GpuKernel, ...] = ()
    activity: tuple[GpuActivity, ...] = ()
    host: tuple[GpuHost, ...] = ()
    lines: tuple[GpuLine, ...] = ()
    sum_ns: int = 0
    paused_ns: int = 0
    pauses: tuple[tuple[str, int], ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    health_reason: str = ""
    health_hung: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers: what ``json.dumps`` accepts."""
        return {
            "status": self.status,
            "reason": self.reason,
            "tier": self.tier,
            "cupti_version": self.cupti_version,
            "cupti_path": self.cupti_path,
            "driver_version": self.driver_version,
            "devices": [_device_dict(device) for device in self.devices],
            "kernels": [[int(v) if v is True or v is False else v for v in _row(kernel)]
                        for kernel in self.kernels],
            "activity": [_row(activity) for activity in self.activity],
            "host": [_row(host) for host in self.host],
            "lines": [_row(line) for line in self.lines],
            "sum_ns": self.sum_ns,
            "paused_ns": self.paused_ns,
            "pauses": [list(pause) for pause in self.pauses],
            "counters": dict(self.counters),
            "health_reason": self.health_reason,
            "health_hung": self.health_hung,
        }  # fmt: skip


def only_phases(
    gpu: GpuSnapshot, phase: Sequence[Sequence[int]], wanted: Collection[int]
) -> GpuSnapshot:
    """Return what was given to the device in some phases of the run.

    Work without a site counts as that of measured steps.  Of a kernel, count and time are
    exact; shortest and longest launch are of the whole run, and what only all launches
    together are known of is divided in proportion to their number.

    Args:
        gpu: the whole recording.
        phase: per thread and node the number of its phase.
        wanted: numbers of phases.
    """

    def is_wanted(row: GpuActivity | GpuHost) -> bool:
        for thread, node in ((row.thread, row.node), (row.via_thread, row.via_node)):
            if thread >= 0:
                return phase[thread][node] in wanted
        return STEPS in wanted

    activity = [row for row in gpu.activity if is_wanted(row)]
    count: dict[int, int] = {}
    sum_ns: dict[int, int] = {}
    for row in activity:
        count[row.what] = count.get(row.what, 0) + row.count
        sum_ns[row.what] = sum_ns.get(row.what, 0) + row.sum_ns
    kernels: list[GpuKernel] = []
    became: dict[int, int] = {}
    for i, kernel in enumerate(gpu.kernels):
        if not count.get(i):
            continue
        part = min(1.0, count[i] / kernel.count) if kernel.count else 1.0
        became[i] = len(kernels)
        kernels.append(
            replace(
                kernel,
                count=count[i],
                sum_ns=sum_ns[i],
                small_count=min(count[i], round(kernel.small_count * part)),
                small_ns=min(sum_ns[i], round(kernel.small_ns * part)),
                blocks_ns=kernel.blocks_ns * part,
            )
        )
    return replace(
        gpu,
        kernels=tuple(kernels),
        activity=tuple(
            replace(row, what=became[row.what]) if row.what >= 0 else row
            for row in activity
            if row.what < 0 or row.what in became
        ),
        host=tuple(row for row in gpu.host if is_wanted(row)),
        lines=tuple(row for row in gpu.lines if phase[row.thread][row.node] in wanted),
        sum_ns=sum(row.sum_ns for row in activity),
    )


def _names(of: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(of))


_TIMELINE = tuple(name for name in _names(GpuTimeline) if name != "idle")
_DEVICE = tuple(
    name
    for name in _names(GpuDevice)
    if name not in ("name", "capability", "whole", "steps", "step_count", "health")
)
_COLUMNS = {of: _names(of) for of in (GpuKernel, GpuActivity, GpuHost, GpuLine)}


def _row(value: GpuKernel | GpuActivity | GpuHost | GpuLine) -> list[Any]:
    return [getattr(value, name) for name in _COLUMNS[type(value)]]


def _timeline_dict(timeline: GpuTimeline) -> dict[str, Any]:
    return {
        **{name: getattr(timeline, name) for name in _TIMELINE},
        "idle": [list(pair) for pair in timeline.idle],
    }


def _device_dict(device: GpuDevice) -> dict[str, Any]:
    return {
        **{name: getattr(device, name) for name in _DEVICE},
        "name": device.name,
        "capability": list(device.capability),
        "whole": _timeline_dict(device.whole),
        "steps": _timeline_dict(device.steps),
        "step_count": device.step_count,
        "health": health_dict(device.health),
    }


def read_gpu(value: object, n_keys: int, tree_sizes: Sequence[int]) -> GpuSnapshot | None:
    """Check the field ``gpu`` of a saved run, or of a recorder's export.

    Args:
        value: what stands there; None: no GPU layer was asked for.
        n_keys: number of keys of the snapshot.
        tree_sizes: number of nodes per thread.

    Raises:
        SnapshotError: a value is missing, of the wrong type, out of range, or does not
            fit the others.
    """
    if value is None:
        return None
    top = as_dict(value, "gpu")
    kernels = tuple(_kernel(v, i) for i, v in enumerate(as_list(top.get("kernels"), "gpu.kernels")))
    activity = tuple(
        _activity(v, i, tree_sizes, len(kernels))
        for i, v in enumerate(as_list(top.get("activity"), "gpu.activity"))
    )
    sum_ns = as_int(top.get("sum_ns"), "gpu.sum_ns")
    if sum_ns != sum(a.sum_ns for a in activity):
        raise fail("gpu.sum_ns", sum_ns, "the sum over gpu.activity")
    return GpuSnapshot(
        status=_one_of(top.get("status"), "gpu.status", ("on", "off")),
        reason=as_str(top.get("reason"), "gpu.reason"),
        tier=_or_none(top.get("tier"), "gpu.tier", _tier),
        cupti_version=_or_none(top.get("cupti_version"), "gpu.cupti_version", as_int),
        cupti_path=_or_none(top.get("cupti_path"), "gpu.cupti_path", as_str),
        driver_version=_or_none(top.get("driver_version"), "gpu.driver_version", as_int),
        devices=tuple(
            _device(v, i, n_keys) for i, v in enumerate(as_list(top.get("devices"), "gpu.devices"))
        ),
        kernels=kernels,
        activity=activity,
        host=tuple(
            GpuHost(*_site_row(v, f"gpu.host[{i}]", 11, tree_sizes))
            for i, v in enumerate(as_list(top.get("host"), "gpu.host"))
        ),
        lines=tuple(
            _line(v, i, tree_sizes) for i, v in enumerate(as_list(top.get("lines"), "gpu.lines"))
        ),
        sum_ns=sum_ns,
        paused_ns=as_int(top.get("paused_ns"), "gpu.paused_ns"),
        pauses=tuple(
            _pause(v, i) for i, v in enumerate(as_list(top.get("pauses"), "gpu.pauses"))
        ),
        counters={
            as_str(k, "gpu.counters key"): as_int(v, f"gpu.counters[{show(k)}]")
            for k, v in as_dict(top.get("counters"), "gpu.counters").items()
        },
        # Runs saved before there was any do not have these.
        health_reason=as_str(top.get("health_reason", ""), "gpu.health_reason"),
        health_hung=_flag(top.get("health_hung", False), "gpu.health_hung"),
    )  # fmt: skip


def _one_of(value: object, where: str, known: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise fail(where, value, f"one of {', '.join(known)}")
    return value


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise fail(where, value, "true or false")
    return value


def _tier(value: object, where: str) -> str:
    return _one_of(value, where, ("callbacks", "external"))


def _or_none(value: object, where: str, read: Any) -> Any:
    return None if value is None else read(value, where)


def _pause(value: object, i: int) -> tuple[str, int]:
    where = f"gpu.pauses[{i}]"
    pair = as_list(value, where)
    if len(pair) != 2:
        raise fail(where, value, "[why, ns]")
    return as_str(pair[0], where), as_int(pair[1], where)


def _timeline(value: object, where: str, n_keys: int) -> GpuTimeline:
    t = as_dict(value, where)
    times = {name: as_int(t.get(name), f"{where}.{name}") for name in _TIMELINE}
    idle = []
    for i, item in enumerate(as_list(t.get("idle"), f"{where}.idle")):
        pair = as_list(item, f"{where}.idle[{i}]")
        if len(pair) != 2:
            raise fail(f"{where}.idle[{i}]", item, "[key, ns]")
        key = as_int(pair[0], f"{where}.idle[{i}]", -1, n_keys - 1)
        idle.append((key, as_int(pair[1], f"{where}.idle[{i}]")))
    if times["busy_ns"] + sum(ns for _, ns in idle) != times["wall_ns"]:
        raise fail(f"{where}.wall_ns", times["wall_ns"], "busy time and idle time together")
    for name in _TIMELINE[2:]:
        if times[name] > times["busy_ns"]:
            raise fail(f"{where}.{name}", times[name], "no more than busy_ns")
    return GpuTimeline(**times, idle=tuple(idle))


def _device(value: object, i: int, n_keys: int) -> GpuDevice:
    where = f"gpu.devices[{i}]"
    d = as_dict(value, where)
    numbers = {name: as_int(d.get(name), f"{where}.{name}") for name in _DEVICE}
    major, minor = as_ints(d.get("capability"), f"{where}.capability", 2)
    return GpuDevice(
        name=as_str(d.get("name"), f"{where}.name"),
        capability=(major, minor),
        whole=_timeline(d.get("whole"), f"{where}.whole", n_keys),
        steps=_timeline(d.get("steps"), f"{where}.steps", n_keys),
        step_count=as_int(d.get("step_count"), f"{where}.step_count"),
        health=read_health(d.get("health"), f"{where}.health"),
        **numbers,
    )


def _kernel(value: object, i: int) -> GpuKernel:
    where = f"gpu.kernels[{i}]"
    items = as_list(value, where)
    if len(items) != len(_COLUMNS[GpuKernel]):
        raise fail(where, value, f"{len(_COLUMNS[GpuKernel])} values")
    blocks_ns = as_float(items[-1], where)
    values: list[Any] = [as_str(items[0], where), *(as_int(v, where) for v in items[1:-1])]
    values[11] = as_int(values[11], where, 0, 1) == 1
    values.append(blocks_ns)
    kernel = GpuKernel(*values)
    if kernel.small_count > kernel.count or kernel.small_ns > kernel.sum_ns:
        raise fail(where, value, "no more small launches than launches")
    if kernel.min_ns > kernel.max_ns or blocks_ns < 0:
        raise fail(where, value, "min_ns up to max_ns, and blocks_ns not negative")
    return kernel


def _check_site(thread: int, node: int, where: str, tree_sizes: Sequence[int]) -> None:
    if thread == node == -1:
        return
    if not (0 <= thread < len(tree_sizes) and 0 <= node < tree_sizes[thread]):
        raise fail(where, f"{thread}, {node}", "a thread and a node of it, or -1 and -1")


def _site_row(value: object, where: str, n: int, tree_sizes: Sequence[int]) -> list[int]:
    """Two sites, how, and numbers: what rows of activities and of the host begin with."""
    items = as_list(value, where)
    if len(items) != n:
        raise fail(where, value, f"{n} integers")
    sites = [as_int(v, where, -1) for v in items[:4]]
    _check_site(sites[0], sites[1], where, tree_sizes)
    _check_site(sites[2], sites[3], where, tree_sizes)
    how = as_int(items[4], where, HOW_OWN, HOW_UNKNOWN)
    return [*sites, how, *(as_int(v, where) for v in items[5:])]


def _activity(value: object, i: int, tree_sizes: Sequence[int], n_kernels: int) -> GpuActivity:
    where = f"gpu.activity[{i}]"
    items = as_list(value, where)
    if len(items) != 9:
        raise fail(where, value, "9 integers")
    what = as_int(items[5], where, OTHER_KERNELS, n_kernels - 1)
    row = _site_row([*items[:5], 0, *items[6:]], where, 9, tree_sizes)
    row[5] = what
    return GpuActivity(*row)


def _line(value: object, i: int, tree_sizes: Sequence[int]) -> GpuLine:
    where = f"gpu.lines[{i}]"
    items = as_list(value, where)
    if len(items) != 7:
        raise fail(where, value, "[thread, node, file, line, function, syncs, blocked_ns]")
    thread, node = (as_int(v, where, -1) for v in items[:2])
    _check_site(thread, node, where, tree_sizes)
    return GpuLine(
        thread,
        node,
        as_str(items[2], where),
        as_int(items[3], where),
        as_str(items[4], where),
        as_int(items[5], where, 0, MAX_INT),
        as_int(items[6], where, 0, MAX_INT),
    )
