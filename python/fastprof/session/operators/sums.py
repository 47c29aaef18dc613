"""Adds up torch.profiler's figures of several windows, by operator and input shapes."""

from collections.abc import Iterable
from typing import Any

from fastprof.snapshot.operators import Operator

#: Rows kept separately; further ones are added up as one of each kind.
MAX_ROWS = 10_000
OTHER = "(other operators)"

_MAX_BYTES = 2**53
_MAX_INT = 2**63 - 1


class OperatorSums:
    """Sums over the windows of a run."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], list[int]] = {}

    def add(self, averages: Iterable[Any]) -> None:
        """Add the ``FunctionEventAvg`` of one window."""
        for event in averages:
            key = (str(event.key), _kind(event), _shapes(event))
            if key not in self._rows and len(self._rows) >= MAX_ROWS:
                key = (OTHER, key[1], "")
            row = self._rows.setdefault(key, [0] * 10)
            for i, number in enumerate(_numbers(event)):
                row[i] += number

    def rows(self) -> tuple[Operator, ...]:
        """Return the sums, in the order of the operators' first appearance."""
        return tuple(
            Operator(
                *key,
                *(min(max(0, n), _MAX_INT) for n in row[:6]),
                *(min(max(-_MAX_BYTES, n), _MAX_BYTES) for n in row[6:]),
            )
            for key, row in self._rows.items()
        )


def _kind(event: Any) -> str:
    kind = "annotation" if getattr(event, "is_user_annotation", False) else "op"
    # DeviceType.CPU: the module of this enumeration must not be imported.
    if str(getattr(event, "device_type", "CPU")).endswith("CPU"):
        return kind
    return "device" if kind == "op" else "device_annotation"


def _shapes(event: Any) -> str:
    shapes = getattr(event, "input_shapes", None)
    return str(shapes) if shapes else ""


def _numbers(event: Any) -> list[int]:
    """Return calls, times in ns (torch has us), operations and bytes, as the fields of Operator."""
    return [
        int(event.count),
        round(event.self_cpu_time_total * 1000),
        round(event.cpu_time_total * 1000),
        round(_device(event, "self_{}_time_total") * 1000),
        round(_device(event, "{}_time_total") * 1000),
        int(getattr(event, "flops", 0) or 0),
        int(event.self_cpu_memory_usage),
        int(event.cpu_memory_usage),
        int(_device(event, "self_{}_memory_usage")),
        int(_device(event, "{}_memory_usage")),
    ]


def _device(event: Any, name: str) -> float:
    """Return a figure of the device, which torch before 2.4 calls ``cuda``."""
    value: Any = getattr(event, name.format("device"), None)
    return float(getattr(event, name.format("cuda"), 0) if value is None else value)
