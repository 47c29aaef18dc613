"""The operators' part of a snapshot: what torch.profiler told of the recorded windows.

Times are nanoseconds, memory is bytes (what an operator freed is negative), steps are
counted from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fastprof.snapshot.fields import as_dict, as_int, as_ints, as_list, as_str, fail

#: What a row is: an operator, something that ran on the device, a ``record_function`` as
#: the host saw it, and what it covers on the device.
OPERATOR_KINDS = ("op", "device", "annotation", "device_annotation")

#: No program has so much memory; what is freed is negative.
_MAX_BYTES = 2**53


@dataclass(frozen=True, slots=True)
class Operator:
    """All calls of one operator with the same input shapes, over all windows.

    ``shapes`` is empty where shapes were not recorded.  ``self_`` leaves out the operators
    called inside.  Device figures are of what the operator gave the device to do; such a
    kernel is also a row of its own, of kind ``device``.
    """

    name: str
    kind: str
    shapes: str
    calls: int
    self_cpu_ns: int
    cpu_ns: int
    self_device_ns: int
    device_ns: int
    flops: int
    self_cpu_bytes: int
    cpu_bytes: int
    self_device_bytes: int
    device_bytes: int


_SIGNED = ("self_cpu_bytes", "cpu_bytes", "self_device_bytes", "device_bytes")
_NUMBERS = tuple(f.name for f in fields(Operator))[3:]


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """The recorded windows, and their operators added up.

    ``windows`` are the first and the last step of each; ``lost`` windows are not among
    them.  ``device`` is what torch calls the device (``cuda``), empty if there was none.
    ``files`` are the names of the files written into the output directory.  ``events`` are
    the calls that torch recorded, ``cost_ns`` is the time that recording and reading them took.
    """

    device: str = ""
    windows: tuple[tuple[int, int], ...] = ()
    lost: int = 0
    shapes: bool = False
    memory: bool = False
    flops: bool = False
    row_limit: int = 50
    rows: tuple[Operator, ...] = ()
    files: tuple[str, ...] = ()
    events: int = 0
    cost_ns: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers: what ``json.dumps`` accepts."""
        return {
            "device": self.device,
            "windows": [list(window) for window in self.windows],
            "lost": self.lost,
            **{name: getattr(self, name) for name in _FLAGS},
            "row_limit": self.row_limit,
            "rows": [[getattr(row, f.name) for f in fields(row)] for row in self.rows],
            "files": list(self.files),
            "events": self.events,
            "cost_ns": self.cost_ns,
        }


_FLAGS = ("shapes", "memory", "flops")


def read_operators(value: object) -> OperatorSnapshot | None:
    """Check the field ``operators`` of a saved run; None: operators were not recorded.

    Raises:
        SnapshotError: a value is missing, of the wrong type, out of range, or does not
            fit the others.
    """
    if value is None:
        return None
    top = as_dict(value, "operators")
    for name in _FLAGS:
        if type(top.get(name)) is not bool:
            raise fail(f"operators.{name}", top.get(name), "true or false")
    return OperatorSnapshot(
        device=as_str(top.get("device"), "operators.device"),
        windows=_windows(top.get("windows")),
        lost=as_int(top.get("lost"), "operators.lost"),
        row_limit=as_int(top.get("row_limit"), "operators.row_limit", -1),
        rows=tuple(_row(v, i) for i, v in enumerate(as_list(top.get("rows"), "operators.rows"))),
        files=tuple(
            as_str(v, "operators.files[]") for v in as_list(top.get("files"), "operators.files")
        ),
        # Runs saved before these were kept have none.
        events=as_int(top.get("events", 0), "operators.events"),
        cost_ns=as_int(top.get("cost_ns", 0), "operators.cost_ns"),
        **{name: top[name] for name in _FLAGS},
    )


def _windows(value: object) -> tuple[tuple[int, int], ...]:
    out: list[tuple[int, int]] = []
    for i, item in enumerate(as_list(value, "operators.windows")):
        first, last = as_ints(item, f"operators.windows[{i}]", 2)
        if last < first or (out and first <= out[-1][1]):
            raise fail(f"operators.windows[{i}]", item, "steps in ascending order")
        out.append((first, last))
    return tuple(out)


def _row(value: object, i: int) -> Operator:
    where = f"operators.rows[{i}]"
    items = as_list(value, where)
    if len(items) != 3 + len(_NUMBERS):
        raise fail(where, value, f"{3 + len(_NUMBERS)} values")
    if items[1] not in OPERATOR_KINDS:
        raise fail(where, items[1], f"one of {OPERATOR_KINDS}")
    numbers = {
        name: as_int(v, f"{where}.{name}", -_MAX_BYTES, _MAX_BYTES)
        if name in _SIGNED
        else as_int(v, f"{where}.{name}")
        for name, v in zip(_NUMBERS, items[3:], strict=True)
    }
    return Operator(as_str(items[0], where), items[1], as_str(items[2], where), **numbers)
