"""The GPU's part of a snapshot: sums of CUPTI's records.

Times are integer nanoseconds of CUPTI's clock, never estimated.  Every activity (kernel,
copy, memset) is counted in exactly one row of ``activity``, so those rows add up to
``sum_ns``.

A *site* is a thread (index into ``Snapshot.threads``) and a row of its tree: the place that
launched the work, not the host's place while it ran.  (-1, -1) means no site.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from fastprof.snapshot.codec import Count, Record, Row, sized
from fastprof.snapshot.gpu_health import GpuHealth
from fastprof.snapshot.kinds import Choice, Index, Integer, Known, Number, Numbered, WrongError
from fastprof.snapshot.run_phases import STEPS

#: How the site of an activity was found.  OWN: the launching thread was there.  INHERITED: that
#: thread had no open section, and ``via`` is the site in the thread whose work it did (autograd's
#: threads work for the one in ``backward()``).  CAPTURED: a CUDA graph was replayed at the site and
#: captured at ``via``.  OTHER: the launching thread works for no known section.  UNKNOWN: not even
#: the launch is known.
HOW_OWN, HOW_INHERITED, HOW_CAPTURED, HOW_OTHER, HOW_UNKNOWN = range(5)

#: Kinds of activities other than the table's kernels; H, D, P: host, device, peer.
COPY_H2D, COPY_D2H, COPY_D2D, COPY_P2P, COPY_H2H, COPY_OTHER, MEMSET, OTHER_KERNELS = range(
    -1, -9, -1
)

_Site = Annotated[int, Integer(-1)]
_How = Annotated[int, Integer(HOW_OWN, HOW_UNKNOWN)]


def _check_site(thread: int, node: int, known: Known) -> None:
    if not (thread == node == -1 or known.has_node(thread, node)):
        raise WrongError(f"{thread}, {node}", "a thread and a node of it, or -1 and -1")


@dataclass(frozen=True, slots=True)
class GpuTimeline(Record):
    """A device's busy time, and the training thread's sections during its idle time.

    ``kernel_ns`` is time with at least one kernel, split by kind into ``compute_ns`` and
    ``communication_ns`` with ``overlap_ns`` in both; ``copy_ns`` is time with at least one copy or
    memset, ``copy_alone_ns`` its part without any kernel.  ``idle`` lists (key of the training
    thread's outermost section or -1, ns); wall = busy + idle.
    """

    wall_ns: Count = 0
    busy_ns: Count = 0
    kernel_ns: Count = 0
    compute_ns: Count = 0
    communication_ns: Count = 0
    overlap_ns: Count = 0
    copy_ns: Count = 0
    copy_alone_ns: Count = 0
    idle: tuple[tuple[Annotated[int, Index("keys", -1)], Count], ...] = ()

    def check(self, known: Known) -> None:
        if self.busy_ns + sum(ns for _, ns in self.idle) != self.wall_ns:
            raise WrongError(self.wall_ns, "busy time and idle time together", ".wall_ns")
        for name in (
            *("kernel_ns", "compute_ns", "communication_ns"),
            *("overlap_ns", "copy_ns", "copy_alone_ns"),
        ):
            if getattr(self, name) > self.busy_ns:
                raise WrongError(getattr(self, name), "no more than busy_ns", f".{name}")


@dataclass(frozen=True, slots=True)
class GpuDevice(Record):
    """A device, and its timeline over the whole recording and over the measured steps.

    Its properties come from the driver, 0 if the driver does not tell.  ``health`` is None if
    unknown.
    """

    index: Count
    name: str
    multiprocessors: Count
    memory_bytes: Count
    threads_per_multiprocessor: Count
    blocks_per_multiprocessor: Count
    registers_per_multiprocessor: Count
    shared_bytes_per_multiprocessor: Count
    warp_size: Count
    capability: tuple[Count, Count]
    whole: GpuTimeline = GpuTimeline()
    steps: GpuTimeline = GpuTimeline()
    step_count: Count = 0
    health: GpuHealth | None = None


@dataclass(frozen=True, slots=True)
class GpuKernel(Row):
    """Launches of one kernel with one configuration.

    ``registers`` are per thread, shared memory is bytes per block.  With ``grid_varied`` the grid
    is the last one.  ``small_*`` are launches that ran for less than 100 us.  ``blocks_ns`` adds up
    blocks x duration of every launch.
    """

    name: str
    device: Count
    block_x: Count
    block_y: Count
    block_z: Count
    registers: Count
    static_shared: Count
    dynamic_shared: Count
    grid_x: Count
    grid_y: Count
    grid_z: Count
    grid_varied: Annotated[bool, Numbered(False, True)]
    count: Count
    sum_ns: Count
    min_ns: Count
    max_ns: Count
    small_count: Count
    small_ns: Count
    blocks_ns: Annotated[float, Number(0)]

    def check(self, known: Known) -> None:
        if self.small_count > self.count or self.small_ns > self.sum_ns:
            raise WrongError(self.small_count, "no more small launches than launches")
        if self.min_ns > self.max_ns:
            raise WrongError(self.min_ns, "min_ns up to max_ns")


@dataclass(frozen=True, slots=True)
class _AtSite(Row):
    """The data of one site."""

    thread: _Site
    node: _Site
    via_thread: _Site
    via_node: _Site
    how: _How

    def check(self, known: Known) -> None:
        _check_site(self.thread, self.node, known)
        _check_site(self.via_thread, self.via_node, known)


@dataclass(frozen=True, slots=True)
class GpuActivity(_AtSite):
    """Activities of one kind launched at one site.

    ``what`` is an index into ``GpuSnapshot.kernels`` or one of the negative constants
    above; ``bytes`` is 0 for kernels.
    """

    what: Annotated[int, Index("kernels", OTHER_KERNELS)]
    count: Count
    sum_ns: Count
    bytes: Count


@dataclass(frozen=True, slots=True)
class GpuHost(_AtSite):
    """The host's side at one site.

    ``launches`` are calls that gave the device work; ``delays`` is the number of activities whose
    time from launch to start is known, ``delay_ns`` the sum of these times.  ``syncs`` counts calls
    in which the host waited for the device, ``blocked_ns`` is their time.
    """

    launches: Count
    delays: Count
    delay_ns: Count
    delay_max_ns: Count
    syncs: Count
    blocked_ns: Count


@dataclass(frozen=True, slots=True)
class GpuLine(Row):
    """A source line in which the host waited; a part of ``GpuHost``."""

    thread: _Site
    node: _Site
    file: str
    line: Count
    function: str
    syncs: Count
    blocked_ns: Count

    def check(self, known: Known) -> None:
        _check_site(self.thread, self.node, known)


@dataclass(frozen=True, slots=True)
class GpuSnapshot(Record):
    """The recorded data of the GPU.

    ``status`` is ``on``, or ``off`` if nothing could be collected, with the reason in ``reason``;
    with ``on``, a reason names the workaround in use.  ``tier`` is ``callbacks`` or ``external``:
    how launches were matched to sites.  ``paused_ns`` is the time in which another profiler had the
    records, ``pauses`` lists these profilers and times.  ``health_reason`` says why the devices'
    health is unknown, or ends early: then ``health_hung`` is true.
    """

    status: Annotated[str, Choice("on", "off")]
    reason: str = ""
    tier: Annotated[str, Choice("callbacks", "external")] | None = None
    cupti_version: Count | None = None
    cupti_path: str | None = None
    driver_version: Count | None = None
    devices: tuple[GpuDevice, ...] = ()
    kernels: Annotated[tuple[GpuKernel, ...], sized("kernels")] = ()
    activity: tuple[GpuActivity, ...] = ()
    host: tuple[GpuHost, ...] = ()
    lines: tuple[GpuLine, ...] = ()
    sum_ns: Count = 0
    paused_ns: Count = 0
    pauses: tuple[tuple[str, Count], ...] = ()
    counters: Mapping[str, Count] = field(default_factory=dict)
    health_reason: str = ""
    health_hung: bool = False

    def check(self, known: Known) -> None:
        if self.sum_ns != sum(row.sum_ns for row in self.activity):
            raise WrongError(self.sum_ns, "the sum over gpu.activity", ".sum_ns")


def only_phases(
    gpu: GpuSnapshot, phase: Sequence[Sequence[int]], wanted: Collection[int]
) -> GpuSnapshot:
    """Return the work launched in some phases of the run.

    Work without a site counts to measured steps.  A kernel's count and time are exact; its shortest
    and longest launch are those of the whole run, and values known only for all launches together
    are divided in proportion to their number.

    Args:
        phase: per thread and node the number of its phase.
    """

    def is_wanted(thread: int, node: int, via_thread: int = -1, via_node: int = -1) -> bool:
        if thread < 0:
            thread, node = via_thread, via_node
        return (STEPS if thread < 0 else phase[thread][node]) in wanted

    def at_site(row: GpuActivity | GpuHost) -> bool:
        return is_wanted(row.thread, row.node, row.via_thread, row.via_node)

    activity = [row for row in gpu.activity if at_site(row)]
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
        host=tuple(row for row in gpu.host if at_site(row)),
        lines=tuple(row for row in gpu.lines if is_wanted(row.thread, row.node)),
        sum_ns=sum(row.sum_ns for row in activity),
    )
