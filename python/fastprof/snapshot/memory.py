"""The GPU memory's part of a snapshot: the figures of PyTorch's caching allocator.

Numbers are bytes. *Allocated* is memory that tensors occupy, *reserved* memory that the allocator
has taken from the device.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from fastprof.snapshot.codec import Count, Record, Row
from fastprof.snapshot.kinds import Integer, Known, WrongError

#: No device has this much memory; a difference of two amounts may be negative.
_MAX_GROWTH = 2**53


@dataclass(frozen=True, slots=True)
class MemorySample(Row):
    """The allocator at the end of one step; the peaks cover the time since the previous sample.

    If ``MemorySnapshot.peaks_reset`` is False, they cover the time since the program's own last
    reset.
    """

    step: Count
    allocated: Count
    reserved: Count
    peak_allocated: Count
    peak_reserved: Count


@dataclass(frozen=True, slots=True)
class MemorySection(Row):
    """One section name: the highest peaks in any of ``count`` entries.

    ``grown_bytes`` sums up the growth of allocated memory from begin to end of the entries; freeing
    memory of others makes it negative.
    """

    name: str
    count: Count
    peak_allocated: Count
    peak_reserved: Count
    last_allocated: Count
    grown_bytes: Annotated[int, Integer(-_MAX_GROWTH, _MAX_GROWTH)]


@dataclass(frozen=True, slots=True)
class MemorySnapshot(Record):
    """One device's memory.

    ``samples`` are a thinned selection (bounded) of ``steps`` samples taken, one per step;
    ``sum_peak_allocated`` covers all of them.  ``retries`` are allocations that succeeded only
    after the cache was emptied, ``ooms`` failed ones, ``device_allocs`` and ``device_frees`` calls
    of cudaMalloc and cudaFree, all during the recording.  ``parts`` are the optimizers' parameters,
    their gradients, and the optimizers' state; None if no optimizer was observed.
    """

    device: Count
    total_bytes: Count | None
    current_allocated: Count
    current_reserved: Count
    peak_allocated: Count
    peak_reserved: Count
    samples: tuple[MemorySample, ...] = ()
    peaks_reset: bool = False
    steps: Count = 0
    sum_peak_allocated: Count = 0
    first_allocated: Count = 0
    last_allocated: Count = 0
    retries: Count = 0
    ooms: Count = 0
    device_allocs: Count = 0
    device_frees: Count = 0
    sections: tuple[MemorySection, ...] = ()
    parts: tuple[Count, Count, Count] | None = None

    def check(self, known: Known) -> None:
        for i, (before, sample) in enumerate(pairwise(self.samples), 1):
            if sample.step <= before.step:
                raise WrongError(
                    sample.step, "a later step than the sample before", f".samples[{i}]"
                )
        if len(self.samples) > self.steps:
            raise WrongError(self.steps, "the number of samples taken", ".steps")
