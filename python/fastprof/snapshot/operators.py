"""The operators' part of a snapshot: torch.profiler's figures of the recorded windows.

Times are nanoseconds, memory is bytes (negative for an operator that freed more), steps are counted
from 0.
"""

from dataclasses import dataclass
from typing import Annotated

from fastprof.snapshot.codec import Count, Record, Row
from fastprof.snapshot.kinds import Choice, Integer, Known, WrongError

#: Kinds of rows: an operator, work on the device, a ``record_function`` on the host, and the part
#: that it covers on the device.
OPERATOR_KINDS = ("op", "device", "annotation", "device_annotation")

#: No program has this much memory; freed memory is negative.
_MAX_BYTES = 2**53
_Growth = Annotated[int, Integer(-_MAX_BYTES, _MAX_BYTES)]


@dataclass(frozen=True, slots=True)
class Operator(Row):
    """All calls of one operator with the same input shapes, over all windows.

    ``shapes`` is empty if shapes were not recorded.  ``self_`` leaves out nested operators.  Device
    figures cover the work that the operator gave the device; such a kernel also has a separate row,
    of kind ``device``.
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

    ``windows`` are the first and the last step of each; ``lost`` windows are not among them.
    ``device`` is torch's name of the device (``cuda``), empty without one.  ``files`` are the names
    of the files in the output directory.  ``events`` is the number of calls that torch recorded,
    ``cost_ns`` the time to record and read them.
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
    events: Count = 0
    cost_ns: Count = 0

    def check(self, known: Known) -> None:
        end = -1
        for i, (first, last) in enumerate(self.windows):
            if not end < first <= last:
                raise WrongError([first, last], "steps in ascending order", f".windows[{i}]")
            end = last
