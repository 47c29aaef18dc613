"""The GPU memory's part of a snapshot: what PyTorch's caching allocator told.

Numbers are bytes.  *Allocated* is what tensors occupy, *reserved* what the allocator has
taken from the device.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fastprof.snapshot.fields import as_dict, as_int, as_ints, as_list, as_str, fail

#: No device has so much memory; a difference of two amounts may be negative.
_MAX_GROWTH = 2**53


@dataclass(frozen=True, slots=True)
class MemorySample:
    """The allocator at the end of one step; the peaks are since the sample before.

    They are since the program's own last reset if ``MemorySnapshot.peaks_reset`` is False.
    """

    step: int
    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int


@dataclass(frozen=True, slots=True)
class MemorySection:
    """One section name: the highest peaks in any of ``count`` entries.

    ``grown_bytes`` adds up, over the entries, allocated memory at the end less that at
    the beginning; what a section frees of others makes it negative.
    """

    name: str
    count: int
    peak_allocated: int
    peak_reserved: int
    last_allocated: int
    grown_bytes: int


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """One device's memory.

    ``samples`` are a thinned selection (bounded) of ``steps`` samples taken, one per step;
    ``sum_peak_allocated`` is over all of them.  ``retries`` are allocations that succeeded
    only after the cache was emptied, ``ooms`` those that failed, ``device_allocs`` and
    ``device_frees`` calls of cudaMalloc and cudaFree, all during the recording.  ``parts``
    are parameters that optimizers have, their gradients, and the optimizers' state; None
    if no optimizer was seen.
    """

    device: int
    total_bytes: int | None
    current_allocated: int
    current_reserved: int
    peak_allocated: int
    peak_reserved: int
    samples: tuple[MemorySample, ...] = ()
    peaks_reset: bool = False
    steps: int = 0
    sum_peak_allocated: int = 0
    first_allocated: int = 0
    last_allocated: int = 0
    retries: int = 0
    ooms: int = 0
    device_allocs: int = 0
    device_frees: int = 0
    sections: tuple[MemorySection, ...] = ()
    parts: tuple[int, int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers: what ``json.dumps`` accepts."""
        return {
            **{name: getattr(self, name) for name in _NUMBERS},
            "total_bytes": self.total_bytes,
            "peaks_reset": self.peaks_reset,
            "samples": [_row(sample) for sample in self.samples],
            "sections": [_row(section) for section in self.sections],
            "parts": None if self.parts is None else list(self.parts),
        }


_NUMBERS = tuple(
    f.name
    for f in fields(MemorySnapshot)
    if f.name not in ("total_bytes", "peaks_reset", "samples", "sections", "parts")
)


def _row(value: MemorySample | MemorySection) -> list[Any]:
    return [getattr(value, f.name) for f in fields(value)]


def read_memory(value: object) -> MemorySnapshot | None:
    """Check the field ``memory`` of a saved run; None: memory was not recorded.

    Raises:
        SnapshotError: a value is missing, of the wrong type, out of range, or does not
            fit the others.
    """
    if value is None:
        return None
    top = as_dict(value, "memory")
    numbers = {name: as_int(top.get(name), f"memory.{name}") for name in _NUMBERS}
    total = top.get("total_bytes")
    reset = top.get("peaks_reset")
    if type(reset) is not bool:
        raise fail("memory.peaks_reset", reset, "true or false")
    samples = []
    last = -1
    for i, item in enumerate(as_list(top.get("samples"), "memory.samples")):
        sample = MemorySample(*as_ints(item, f"memory.samples[{i}]", 5))
        if sample.step <= last:
            raise fail(f"memory.samples[{i}]", sample.step, "a later step than the sample before")
        last = sample.step
        samples.append(sample)
    if len(samples) > numbers["steps"]:
        raise fail("memory.steps", numbers["steps"], "the number of samples taken")
    return MemorySnapshot(
        total_bytes=None if total is None else as_int(total, "memory.total_bytes"),
        peaks_reset=reset,
        samples=tuple(samples),
        sections=tuple(
            _section(v, i) for i, v in enumerate(as_list(top.get("sections"), "memory.sections"))
        ),
        parts=_parts(top.get("parts")),
        **numbers,
    )


def _parts(value: object) -> tuple[int, int, int] | None:
    if value is None:  # or a run saved before they were known
        return None
    parameters, gradients, state = as_ints(value, "memory.parts", 3)
    return parameters, gradients, state


def _section(value: object, i: int) -> MemorySection:
    where = f"memory.sections[{i}]"
    items = as_list(value, where)
    if len(items) != 6:
        raise fail(where, value, "[name, count, peak, peak reserved, last, grown]")
    numbers = [as_int(v, where) for v in items[1:-1]]
    numbers.append(as_int(items[-1], where, -_MAX_GROWTH, _MAX_GROWTH))
    return MemorySection(as_str(items[0], where), *numbers)
