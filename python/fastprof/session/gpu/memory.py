"""GPU memory of torch's caching allocator, sampled between steps.

It reads ``torch.cuda.memory_stats``, but only once the program itself has imported torch and
initialised CUDA.  This is a call into the allocator, not into the GPU: it waits for nothing.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, TypeVar, cast

from fastprof.capture import Section
from fastprof.clock import time
from fastprof.guards import own_errors
from fastprof.session.faults import Faults
from fastprof.session.gpu.cuda_init import used_cuda
from fastprof.session.gpu.memory_parts import OptimizerMemory
from fastprof.session.pace import Pace
from fastprof.session.part import Part

_F = TypeVar("_F")

MODES = ("auto", "step", "section", False)
MemoryMode = Literal["auto", "step", "section", False]

#: Samples kept; neighbours are merged when there are more.
MAX_SAMPLES = 512

#: Sections kept separately; further names count as one.
MAX_SECTIONS = 256
OTHER_SECTIONS = "(other sections)"

#: With ``"auto"``, samples may take at most this share of wall time.
_SHARE = 0.001

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Reading:
    """Readings of the allocator; bytes, and counts since the program began."""

    allocated: int = 0
    reserved: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    retries: int = 0
    ooms: int = 0
    device_allocs: int = 0
    device_frees: int = 0


_KEYS = {
    "allocated": "allocated_bytes.all.current",
    "reserved": "reserved_bytes.all.current",
    "peak_allocated": "allocated_bytes.all.peak",
    "peak_reserved": "reserved_bytes.all.peak",
    "retries": "num_alloc_retries",
    "ooms": "num_ooms",
    "device_allocs": "num_device_alloc",
    "device_frees": "num_device_free",
}


class _Samples:
    """At most ``MAX_SAMPLES`` rows: step, allocated, reserved and the two peaks.

    When there is no room, every two neighbours become one: the later, with the larger of their
    peaks.
    """

    def __init__(self) -> None:
        self._rows: list[list[int]] = []
        self._last: list[int] | None = None
        self._merged = 0  # samples in _last
        self._per_row = 1

    def add(self, row: list[int]) -> None:
        self._last = row if self._last is None else _merge(self._last, row)
        self._merged += 1
        if self._merged < self._per_row:
            return
        self._rows.append(self._last)
        self._last, self._merged = None, 0
        if len(self._rows) == MAX_SAMPLES:
            pairs = zip(self._rows[::2], self._rows[1::2], strict=True)
            self._rows = [_merge(a, b) for a, b in pairs]
            self._per_row *= 2

    def rows(self) -> list[list[int]]:
        return [*self._rows, *([] if self._last is None else [self._last])]


def _merge(a: list[int], b: list[int]) -> list[int]:
    return [*b[:3], max(a[3], b[3]), max(a[4], b[4])]


@dataclass(slots=True)
class _SectionRow:
    count: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    last_allocated: int = 0
    grown: int = 0


class MemorySampler(Part):
    """Samples the memory of one device, the current one at the first sample, for one run.

    Args:
        pace: with ``"auto"``: when samples are due.
        faults: receives failures; after one there are no more samples.
        clock: returns seconds, for the limit on the cost of ``"auto"``.
    """

    kind = "memory"

    def __init__(
        self,
        mode: MemoryMode,
        pace: Pace,
        faults: Faults,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mode = self._wanted = mode
        self._pace = pace if mode == "auto" else None
        self._faults = faults
        self._clock = clock
        self._not_before = 0.0
        self._resets = mode in ("step", "section")
        self._device: int | None = None
        self._total: int | None = None
        self._optimizers = OptimizerMemory(self._optimizers_failed)
        self._before = Reading()
        self._first: Reading | None = None
        self._latest = Reading()
        self._window = Reading()  # its peaks are the largest since the last sample
        self._peak_allocated = self._peak_reserved = 0
        self._samples = _Samples()
        self._count = 0
        self._sum_peak = 0
        self._last_step = -1
        self._sections: dict[str, _SectionRow] = {}
        self._thread = 0
        self._depth = 0
        self._entered = Reading()

    def around(self, section: Section) -> Section:
        """Return a section that samples memory around it if this does; else itself."""
        if self._mode != "section":
            return section
        return cast("Section", SampledSection(section, self))

    def begin(self) -> None:
        """Start the run: earlier allocations of the program do not count."""
        self._thread = threading.get_ident()
        self._mode = self._wanted  # a start that failed may be repeated
        if self._mode:
            self._optimizers.watch()
            self._before = self._read() or Reading()
            if self._resets:
                self._reset()

    def next_step(self, count: int) -> int:
        if not self._mode:
            return sys.maxsize
        return count + 1 if self._pace is None else self._pace.next_step(count)

    def at_step(self, count: int) -> None:
        """Take a sample after ``count`` steps, if one is due."""
        if not self._mode:
            return
        began = self._clock()
        if self._mode == "auto" and began < self._not_before:
            return
        self.sample(count)
        ended = self._clock()
        self._not_before = ended + (ended - began) / _SHARE

    def sample(self, step: int) -> None:
        """Take a sample, the only one after ``step`` steps."""
        reading = self._note() if self._mode else None
        if reading is None or step == self._last_step:
            return
        self._optimizers.watch()  # torch may have been imported after the run began
        peak_allocated, peak_reserved = self._window.peak_allocated, self._window.peak_reserved
        self._window = Reading()
        if self._resets:
            self._reset()
        self._last_step = step
        self._count += 1
        self._sum_peak += peak_allocated
        self._first = self._first or reading
        self._samples.add(
            [step, reading.allocated, reading.reserved, peak_allocated, peak_reserved]
        )

    def end(self, count: int) -> None:
        """Take the last sample; later ones do not count."""
        self.sample(count)
        self._mode = False
        self._optimizers.end()

    def last(self) -> tuple[int, int] | None:
        """Return the allocated and reserved bytes of the last sample; None: there is none."""
        if self._device is None or not self._mode:
            return None
        return self._latest.allocated, self._latest.reserved

    def line(self, step: int) -> str | None:
        """Return the memory after ``step`` steps as a line of text; 1 GB is 2**30 bytes."""
        self.sample(step)
        if self._device is None or not self._mode:
            return None
        now = self._latest
        return (
            f"[Step {step}] GPU {self._device}: Allocated: {now.allocated / _GIB:.2f}GB, "
            f"Reserved: {now.reserved / _GIB:.2f}GB, Peak: {self._peak_allocated / _GIB:.2f}GB"
        )

    # -- sections ----------------------------------------------------------------

    def enter(self) -> None:
        """Prepare for entering a section."""
        if threading.get_ident() != self._thread:
            return
        self._depth += 1
        if self._depth == 1:
            reading = self._note()
            if reading is not None:
                self._entered = reading
                self._reset()

    def leave(self, name: str) -> None:
        """Handle the exit from section ``name``."""
        if threading.get_ident() != self._thread or not self._depth:
            return
        self._depth -= 1
        reading = self._note() if self._depth == 0 else None
        if reading is None:
            return
        if name not in self._sections and len(self._sections) >= MAX_SECTIONS:
            name = OTHER_SECTIONS
        row = self._sections.setdefault(name, _SectionRow())
        row.count += 1
        row.peak_allocated = max(row.peak_allocated, reading.peak_allocated)
        row.peak_reserved = max(row.peak_reserved, reading.peak_reserved)
        row.last_allocated = reading.allocated
        row.grown += reading.allocated - self._entered.allocated

    # -- results -------------------------------------------------------------------

    def arguments(self, *, whole: bool) -> dict[str, Any]:
        return {"memory": self.to_dict()}

    def to_dict(self) -> dict[str, Any] | None:
        """Return the samples in the layout of a saved run; None: there are none."""
        if self._first is None or self._device is None:
            return None
        now, before, sizes = self._latest, self._before, self._optimizers.sizes()
        return {
            "device": self._device,
            "total_bytes": self._total,
            "current_allocated": now.allocated,
            "current_reserved": now.reserved,
            "peak_allocated": self._peak_allocated,
            "peak_reserved": self._peak_reserved,
            "samples": self._samples.rows(),
            "peaks_reset": self._resets,
            "steps": self._count,
            "sum_peak_allocated": self._sum_peak,
            "first_allocated": self._first.allocated,
            "last_allocated": now.allocated,
            "retries": max(0, now.retries - before.retries),
            "ooms": max(0, now.ooms - before.ooms),
            "device_allocs": max(0, now.device_allocs - before.device_allocs),
            "device_frees": max(0, now.device_frees - before.device_frees),
            "sections": [
                [name, row.count, row.peak_allocated, row.peak_reserved, row.last_allocated,
                 row.grown]
                for name, row in list(self._sections.items())
            ],
            "parts": None if sizes is None else list(sizes),
        }  # fmt: skip

    # -- torch -------------------------------------------------------------------

    def _note(self) -> Reading | None:
        """Read, and keep the peaks for the next sample."""
        reading = self._read()
        if reading is None:
            return None
        self._latest = reading
        self._window = replace(
            self._window,
            peak_allocated=max(self._window.peak_allocated, reading.peak_allocated),
            peak_reserved=max(self._window.peak_reserved, reading.peak_reserved),
        )
        self._peak_allocated = max(self._peak_allocated, reading.peak_allocated)
        self._peak_reserved = max(self._peak_reserved, reading.peak_reserved)
        return reading

    def _read(self) -> Reading | None:
        try:
            cuda = self._cuda()
            if cuda is None:
                return None
            if self._device is None:
                device = int(cuda.current_device())
                self._total = int(cuda.get_device_properties(device).total_memory)
                self._device = self._optimizers.device = device
            stats = cuda.memory_stats(self._device)
            return Reading(**{name: int(stats.get(key, 0)) for name, key in _KEYS.items()})
        except own_errors() as error:
            self._fail(error)
            return None

    def _reset(self) -> None:
        try:
            cuda = self._cuda()
            if cuda is not None and self._device is not None:
                cuda.reset_peak_memory_stats(self._device)
        except own_errors() as error:
            self._fail(error)

    _cuda = staticmethod(used_cuda)

    def _optimizers_failed(self, error: Exception) -> None:
        self._faults.add("memory_errors", "What GPU memory holds is not known", error)

    def _fail(self, error: Exception) -> None:
        if self._faults.is_gap("memory_errors", error):
            return
        self._mode = False
        self._faults.add("memory_errors", "Sampling GPU memory failed and was switched off", error)


class SampledSection:
    """A section whose memory is sampled; used like the section itself."""

    __slots__ = ("_sampler", "_section")

    def __init__(self, section: Section, sampler: MemorySampler) -> None:
        self._section = section
        self._sampler = sampler

    @property
    def name(self) -> str:
        return self._section.name

    def __enter__(self) -> "SampledSection":  # noqa: PYI034 - Self is new in 3.11
        self._sampler.enter()
        self._section.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._section.__exit__(exc_type, exc, tb)
        self._sampler.leave(self._section.name)

    def __call__(self, function: _F, /) -> _F:
        from fastprof.capture.sections import decorate

        return decorate(self, function)  # type: ignore[arg-type, no-any-return]
