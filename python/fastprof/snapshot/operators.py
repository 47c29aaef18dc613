"""The operators' part of a snapshot: the figures of torch.profiler in the recorded windows.

Times are nanoseconds, memory is bytes (what an operator freed is negative), steps are
counted from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastprof.snapshot.codec import Choice, Count, Integer, Known, Later, Record, Row, WrongError

#: Kinds of rows: an operator, something that ran on the device, a ``record_function`` as
#: the host saw it, and what it covers on the device.
OPERATOR_KINDS = ("op", "device", "annotation", "device_annotation")

#: No program has so much memory; what is freed is negative.
_MAX_BYTES = 2**53
_Growth = Annotated[int, Integer(-_MAX_BYTES, _MAX_BYTES)]


@dataclass(frozen=True, slots=True)
class Operator(Row):
    """All calls of one operator with the same input shapes, over all windows.

    ``shapes`` is empty where shapes were not recorded.  ``self_`` leaves out the operators
    called inside.  Device figures are of what the operator gave the device to do; such a
    kernel also has a separate row, of kind ``device``.
    """

    name: str
    kind: Annotated[str, Choice(*OPERATOR_KINDS)]
    shapes: str
    calls: Count
    self_cpu_ns: Count
    cpu_ns: Count
    self_device_ns: Count
    device_ns: Count
    flops: Count
    self_cpu_bytes: _Growth
    cpu_bytes: _Growth
    self_device_bytes: _Growth
    device_bytes: _Growth


@dataclass(frozen=True, slots=True)
class OperatorSnapshot(Record):
    """The recorded windows, and their operators added up.

    ``windows`` are the first and the last step of each; ``lost`` windows are not among
    them.  ``device`` is what torch calls the device (``cuda``), empty if there was none.
    ``files`` are the names of the files written into the output directory.  ``events`` are
    the calls that torch recorded, ``cost_ns`` is the time that recording and reading them took.
    """

    device: str = ""
    windows: tuple[tuple[Count, Count], ...] = ()
    lost: Count = 0
    shapes: bool = False
    memory: bool = False
    flops: bool = False
    row_limit: Annotated[int, Integer(-1)] = 50
    rows: tuple[Operator, ...] = ()
    files: tuple[str, ...] = ()
    events: Later[Count] = 0
    cost_ns: Later[Count] = 0

    def check(self, known: Known) -> None:
        end = -1
        for i, (first, last) in enumerate(self.windows):
            if not end < first <= last:
                raise WrongError([first, last], "steps in ascending order", f".windows[{i}]")
            end = last
