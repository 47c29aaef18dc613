"""The rows about the GPU and its memory in a :class:`~fastprof.report.model.Report`.

Times are integer nanoseconds where they must add up exactly, with the same in milliseconds next to
them; shares are fractions of 1; an unknown value is None.
"""

from dataclasses import dataclass

from fastprof.names import file_name
from fastprof.report.figures import duration
from fastprof.snapshot.memory import MemorySample

#: Name of the kernels for which the table had no row left.
OTHER_KERNELS_NAME = "(other kernels)"
#: The beginning of the reason if the machine has no GPU.
_NO_DEVICE = "no NVIDIA device"
#: If the launches of a larger share of the GPU's time were not seen, no section's or function's GPU
#: time is known.
UNSEEN = 0.5


def mostly_unseen(gpu_ns: int, unattributed_ns: int) -> bool:
    """Return whether too much of the GPU's time has no known launch to say where it came from."""
    return unattributed_ns > UNSEEN * gpu_ns


@dataclass(frozen=True, slots=True)
class GpuUse:
    """GPU work that a section or a function launched, and its waits for the GPU.

    Work counts to the code that launched it, not to the host code that ran at the same time.
    ``gpu_ns`` is the duration of all activities launched in it or below, recursion counted once,
    and equals ``kernel_ns`` + ``copy_ns`` + ``memset_ns``; ``self_ns`` is the duration of those
    that it launched itself.  Concurrent activities count each, so a sum may exceed the time in
    which the GPU was busy.

    ``kernels`` and ``self_kernels`` are counts.  Bytes are copied from host to device
    (h2d), back (d2h), within a device (d2d), between devices (p2p), or otherwise; ``transfer_ns``
    is the part of ``copy_ns`` between host and device.  ``delays`` is the number of activities
    whose time from launch to start is known, ``delay_ns`` the sum of these times.  ``syncs`` counts
    calls in which the host waited for the GPU, ``blocked_ns`` is the time of these waits.
    ``inherited_ns`` is the part of ``gpu_ns`` that other threads launched for it (autograd for
    ``backward()``), ``replayed_ns`` the part from CUDA graphs.
    """

    gpu_ns: int
    self_ns: int
    kernels: int
    self_kernels: int
    kernel_ns: int
    copy_ns: int
    memset_ns: int
    transfer_ns: int
    copies: int
    h2d_bytes: int
    d2h_bytes: int
    d2d_bytes: int
    p2p_bytes: int
    other_bytes: int
    memset_bytes: int
    launches: int
    delays: int
    delay_ns: int
    syncs: int
    blocked_ns: int
    inherited_ns: int
    replayed_ns: int

    @property
    def gpu_ms(self) -> float:
        """Time of all activities launched here or below, in ms."""
        return self.gpu_ns / 1e6

    @property
    def self_ms(self) -> float:
        """Time of the activities launched by the section or function itself, in ms."""
        return self.self_ns / 1e6

    @property
    def delay_ms(self) -> float | None:
        """Mean time from launch to start in ms, or None if it is unknown."""
        return self.delay_ns / self.delays / 1e6 if self.delays else None

    @property
    def blocked_ms(self) -> float:
        """Time the host waited for the GPU, in ms."""
        return self.blocked_ns / 1e6


class HasGpu:
    """Shortcuts for rows with a field ``gpu``; None without a GPU layer."""

    __slots__ = ()
    gpu: GpuUse | None

    @property
    def gpu_ms(self) -> float | None:
        """GPU time of everything launched here or below, in ms."""
        return None if self.gpu is None else self.gpu.gpu_ms

    @property
    def gpu_self_ms(self) -> float | None:
        """GPU time of the work launched here and not below, in ms."""
        return None if self.gpu is None else self.gpu.self_ms

    @property
    def kernels(self) -> int | None:
        """Number of kernels launched here or below."""
        return None if self.gpu is None else self.gpu.kernels

    @property
    def blocked_ms(self) -> float | None:
        """Time the host waited for the GPU here or below, in ms."""
        return None if self.gpu is None else self.gpu.blocked_ms


@dataclass(frozen=True, slots=True)
class IdleRow:
    """Time in which a device was idle while the training thread was in ``section``.

    ``section`` is the outermost one, or ``(no section)``.
    """

    section: str
    idle_ns: int


@dataclass(frozen=True, slots=True)
class GpuTimelineRow:
    """How a device spent a span of time; wall = busy + idle.

    ``idle_data_ns`` is the part of ``idle_ns`` in which the training thread fetched or moved data
    (sections ``data``, ``data_loading``, ``h2d``).  ``communication_ns`` is time with a
    communication kernel, ``overlap_ns`` its part with a concurrent compute kernel.  ``copy_ns`` is
    time with a copy or memset, ``copy_alone_ns`` its part without a concurrent kernel.
    """

    wall_ns: int
    busy_ns: int
    idle_ns: int
    idle_data_ns: int
    kernel_ns: int
    compute_ns: int
    communication_ns: int
    overlap_ns: int
    copy_ns: int
    copy_alone_ns: int
    idle: tuple[IdleRow, ...]

    def _of_wall(self, ns: int) -> float | None:
        return ns / self.wall_ns if self.wall_ns else None

    @property
    def utilization(self) -> float | None:
        """Fraction of the time in which at least one activity ran."""
        return self._of_wall(self.busy_ns)

    @property
    def idle_data_share(self) -> float | None:
        """Fraction of the time in which the device waited for data."""
        return self._of_wall(self.idle_data_ns)

    @property
    def copy_share(self) -> float | None:
        """Fraction of the time in which a copy or memset ran."""
        return self._of_wall(self.copy_ns)

    @property
    def overlap(self) -> float | None:
        """Fraction of communication that compute kernels hid; None without communication."""
        return self.overlap_ns / self.communication_ns if self.communication_ns else None


@dataclass(frozen=True, slots=True)
class ThrottleRow:
    """A reason for throttled clocks, and the fraction of the samples that had it."""

    reason: str
    share: float


@dataclass(frozen=True, slots=True)
class GpuHealthRow:
    """A device's readings from the driver, about one per second; None: the driver had no value.

    Means over at most ``samples`` samples, with their extremes.  The clock is the clock of
    the multiprocessors, over samples in which the device was not idle.  Of ``throttle_samples``
    samples, ``throttled`` is the fraction with throttled clocks, ``slowed`` the fraction with
    another reason than the power cap; several ``reasons``, the most frequent first, may apply at
    the same time.
    """

    samples: int
    temperature_c: float | None
    temperature_max_c: int | None
    sm_clock_mhz: float | None
    sm_clock_min_mhz: int | None
    sm_clock_max_mhz: int | None
    power_w: float | None
    power_max_w: float | None
    throttle_samples: int
    throttled: float | None
    slowed: float | None
    reasons: tuple[ThrottleRow, ...]


@dataclass(frozen=True, slots=True)
class GpuDeviceRow:
    """One device; ``steps`` covers the ``step_count`` measured steps, None without any.

    ``health`` is None if the driver gave no readings.
    """

    index: int
    name: str
    capability: str
    multiprocessors: int
    memory_bytes: int
    step_count: int
    whole: GpuTimelineRow
    steps: GpuTimelineRow | None
    health: GpuHealthRow | None = None

    @property
    def utilization(self) -> float | None:
        """Busy fraction of the measured steps, or of the whole recording without any."""
        return (self.steps or self.whole).utilization


@dataclass(frozen=True, slots=True)
class GpuTotals:
    """Where the GPU time went: the four parts add up to ``gpu_ns`` exactly.

    ``sections_ns`` was launched inside sections, ``outside_ns`` by known threads outside of
    sections, ``other_threads_ns`` by unknown threads; the launches of ``unattributed_ns`` are
    unknown.  ``*_count`` are numbers of activities.  ``inherited_ns`` and ``replayed_ns`` are parts
    of the first two.
    """

    gpu_ns: int
    sections_ns: int
    outside_ns: int
    other_threads_ns: int
    other_threads_count: int
    unattributed_ns: int
    unattributed_count: int
    inherited_ns: int
    replayed_ns: int

    @property
    def unseen_share(self) -> float | None:
        """Share of the GPU's time without a known launch, if so large that no row has GPU time."""
        unseen = mostly_unseen(self.gpu_ns, self.unattributed_ns)
        return self.unattributed_ns / self.gpu_ns if unseen else None


@dataclass(frozen=True, slots=True)
class BlockingLine:
    """A source line in which the host waited for the GPU.

    ``per_step_ms`` is the mean over all steps, None without steps.
    """

    file: str
    line: int
    function: str
    section: str | None
    syncs: int
    blocked_ns: int
    per_step_ms: float | None

    @property
    def text(self) -> str:
        """The line in a sentence: ``train at train.py:88 blocks 41.000 ms per step``."""
        took = self.blocked_ns / 1e6 if self.per_step_ms is None else self.per_step_ms
        per = "" if self.per_step_ms is None else " per step"
        return f"{self.function} at {file_name(self.file)}:{self.line} blocks {duration(took)}{per}"


@dataclass(frozen=True, slots=True)
class CapturedRow:
    """Work of CUDA graphs: the places of the replay and of the capture."""

    replayed_in: str
    captured_in: str
    kernels: int
    gpu_ns: int


@dataclass(frozen=True, slots=True)
class PauseRow:
    """Time in which fastprof did not observe the GPU, and the reason."""

    why: str
    paused_ns: int


@dataclass(frozen=True, slots=True)
class KernelClassRow:
    """All kernels of one class; ``share`` is its share of all kernels' time."""

    name: str
    count: int
    total_ns: int
    share: float | None


@dataclass(frozen=True, slots=True)
class SmallKernels:
    """Kernels that ran for less than 100 us, as fractions of all kernels and of their time."""

    count: int
    of_count: float | None
    of_time: float | None


@dataclass(frozen=True, slots=True)
class GpuReport:
    """The GPU layer as a whole; everything below ``driver_version`` is empty without a GPU layer.

    ``use`` is the total of the rows of the tables.  ``delay_max_ns`` is the longest time from a
    launch to its start.  ``health_reason`` says why the devices' health is unknown, or ends early;
    empty if it is complete.
    """

    status: str
    reason: str
    tier: str | None
    cupti_version: int | None
    driver_version: int | None
    devices: tuple[GpuDeviceRow, ...] = ()
    totals: GpuTotals | None = None
    use: GpuUse | None = None
    delay_max_ns: int | None = None
    classes: tuple[KernelClassRow, ...] = ()
    small: SmallKernels | None = None
    lines: tuple[BlockingLine, ...] = ()
    captured: tuple[CapturedRow, ...] = ()
    paused_ns: int = 0
    pauses: tuple[PauseRow, ...] = ()
    health_reason: str = ""

    @property
    def lacks_device(self) -> bool:
        """Whether the machine has no GPU."""
        return self.status != "on" and self.reason.startswith(_NO_DEVICE)

    @property
    def utilization(self) -> float | None:
        """Busy fraction of all devices' time: of the measured steps if there are any."""
        spans = [device.steps or device.whole for device in self.devices]
        wall = sum(span.wall_ns for span in spans)
        return sum(span.busy_ns for span in spans) / wall if wall else None


@dataclass(frozen=True, slots=True)
class KernelUse:
    """Launches of one kernel by one section or function.

    ``share`` is the share of all kernels' time there.  ``tensor_cores`` is derived from the name;
    None: the name does not tell.
    """

    name: str
    device: int | None
    kind: str
    tensor_cores: bool | None
    count: int
    total_ns: int
    share: float | None
    mean_us: float | None

    @property
    def total_ms(self) -> float:
        """Time of these launches, in ms."""
        return self.total_ns / 1e6


@dataclass(frozen=True, slots=True)
class KernelRow(KernelUse):
    """One kernel name on one device, over all its configurations.

    ``blocks_per_sm`` is the mean number of blocks per multiprocessor, weighted by duration: below 1
    some multiprocessors have no work.  ``occupancy`` is estimated from it, see
    :mod:`fastprof.report.occupancy`.  ``block``, ``grid``, ``registers`` (per thread) and
    ``shared_bytes`` (per block) describe the configuration with most time, one of
    ``configurations``; a grid that varied is the last one.
    """

    min_us: float | None
    max_us: float | None
    small_count: int | None
    small_ns: int | None
    blocks_per_sm: float | None
    occupancy: float | None
    block: tuple[int, int, int] | None
    grid: tuple[int, int, int] | None
    grid_varied: bool | None
    registers: int | None
    shared_bytes: int | None
    configurations: int

    @property
    def blocks_rating(self) -> str | None:
        """``good`` above 1 block per multiprocessor, ``poor`` below 0.5, else ``fair``."""
        if self.blocks_per_sm is None:
            return None
        return "good" if self.blocks_per_sm > 1 else "poor" if self.blocks_per_sm < 0.5 else "fair"


@dataclass(frozen=True, slots=True)
class MemorySectionRow:
    """Memory over all entries of one section.

    ``grown_bytes`` sums up the growth of allocated memory from beginning to end;
    ``self_grown_bytes`` leaves out nested sections, and is None if these also run outside of it.
    """

    name: str
    count: int
    peak_allocated: int
    peak_reserved: int
    last_allocated: int
    grown_bytes: int
    self_grown_bytes: int | None


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """The parts of the peak of allocated memory, in bytes; the four add up to it.

    ``parameters`` are the optimizers' parameters.  ``activations`` is everything else: activations,
    parameters that are not trained, buffers, batches, workspace.  Gradients count as if all of them
    existed at the peak; activations occupied the room of those that did not.
    """

    parameters: int
    gradients: int
    optimizer_state: int
    activations: int


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """One device's memory by PyTorch's caching allocator, in bytes.

    ``share`` is the peak of reserved memory divided by ``total_bytes``.  ``slope_bytes_per_step``
    is the change of allocated memory per step: the median over all pairs of samples (Theil-Sen),
    which a jump at the start does not bend; ``rising`` is the fraction of samples that are above
    the one before.  ``mean_peak_allocated`` is None unless each peak belongs to one sample.
    ``device_allocs`` and ``device_frees`` count cudaMalloc and cudaFree, also per step (None
    without steps); ``retries`` are allocations that had to empty the cache first.  ``parts`` is
    None if no optimizer was observed.
    """

    device: int
    total_bytes: int | None
    current_allocated: int
    current_reserved: int
    peak_allocated: int
    peak_reserved: int
    share: float | None
    sample_count: int
    mean_peak_allocated: float | None
    grown_bytes: int | None
    slope_bytes_per_step: float | None
    rising: float | None
    retries: int
    ooms: int
    device_allocs: int
    device_frees: int
    device_allocs_per_step: float | None
    device_frees_per_step: float | None
    peaks_reset: bool
    samples: tuple[MemorySample, ...]
    sections: tuple[MemorySectionRow, ...]
    parts: MemoryParts | None = None
