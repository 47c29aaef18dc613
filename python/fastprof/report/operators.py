"""The operators' part of a report: torch.profiler's figures of the recorded windows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fastprof.snapshot.operators import Operator, OperatorSnapshot

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One operator over all windows; with shapes, for one kind of input.

    ``kind`` is ``op``, ``annotation`` (a ``record_function``) or, for work on the device,
    ``device`` and ``device_annotation``.  ``self_`` leaves out nested operators.  An operator's
    device time is the time of the kernels that it launched, which have separate rows.  ``share`` is
    of the self CPU time of all rows, ``device_share`` of the device time of all kernels and copies.
    Device figures are None without a device, ``flops`` and ``_bytes`` if they were not recorded.
    """

    name: str
    kind: str
    shapes: str
    calls: int
    self_cpu_ms: float
    cpu_ms: float
    share: float | None
    self_device_ms: float | None
    device_ms: float | None
    device_share: float | None
    flops: int | None
    self_cpu_bytes: int | None
    cpu_bytes: int | None
    self_device_bytes: int | None
    device_bytes: int | None

    @property
    def on_device(self) -> bool:
        """Whether this ran on the device, so that its time is also some operator's."""
        return self.kind.startswith("device")


#: Sort keys of rows, each from the most to the least.
_SORTS: Mapping[str, Callable[[OperatorRow], float]] = {
    "self_device": lambda r: r.self_device_ms or 0.0,
    "self_cpu": lambda r: r.self_cpu_ms,
    "calls": lambda r: r.calls,
    "device": lambda r: r.device_ms or 0.0,
    "cpu": lambda r: r.cpu_ms,
    "self_device_bytes": lambda r: r.self_device_bytes or 0,
    "self_cpu_bytes": lambda r: r.self_cpu_bytes or 0,
}
SORTS = tuple(_SORTS)


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """Operators in ``steps`` recorded steps, added up over the windows.

    ``windows`` lists the first and last step of each, counted from 0; ``lost`` windows are missing.
    ``rows`` are by name, ``by_shape`` by name and input shapes (empty if shapes were not recorded);
    both have most self device time first, or self CPU time without a device.  ``files`` lists the
    files in the output directory.
    """

    device: str
    steps: int
    windows: tuple[tuple[int, int], ...]
    lost: int
    memory: bool
    row_limit: int
    rows: tuple[OperatorRow, ...]
    by_shape: tuple[OperatorRow, ...]
    files: tuple[str, ...]

    def sorted_by(self, key: str, *, shapes: bool = False) -> tuple[OperatorRow, ...]:
        """Return the rows, most of ``key`` first.

        Args:
            key: ``"self_device"``, ``"self_cpu"``, ``"calls"``, ``"device"``, ``"cpu"``,
                ``"self_device_bytes"`` or ``"self_cpu_bytes"``.
            shapes: use the rows by name and input shapes.

        Raises:
            ValueError: another key.
        """
        return _sorted(self.by_shape if shapes else self.rows, key)


def _sorted(rows: Sequence[OperatorRow], key: str) -> tuple[OperatorRow, ...]:
    value = _SORTS.get(key)
    if value is None:
        raise ValueError(f"operators cannot be sorted by {key!r:.80}; there are: {SORTS}")
    return tuple(sorted(rows, key=lambda r: (-value(r), r.name, r.kind, r.shapes)))


def operator_report(recorded: OperatorSnapshot | None) -> OperatorReport | None:
    """Return the report's part about operators; None if they were not recorded."""
    if recorded is None:
        return None
    by_name: dict[tuple[str, str], list[Operator]] = {}
    for item in recorded.rows:
        by_name.setdefault((item.name, item.kind), []).append(item)
    total_cpu = sum(r.self_cpu_ns for r in recorded.rows)
    total_device = sum(r.self_device_ns for r in recorded.rows if r.kind == "device")

    def row(parts: Sequence[Operator], shapes: str) -> OperatorRow:
        return _row(recorded, parts, shapes, total_cpu, total_device)

    key = "self_device" if recorded.device else "self_cpu"
    return OperatorReport(
        device=recorded.device,
        steps=sum(last - first + 1 for first, last in recorded.windows),
        windows=recorded.windows,
        lost=recorded.lost,
        memory=recorded.memory,
        row_limit=recorded.row_limit,
        rows=_sorted([row(parts, "") for parts in by_name.values()], key),
        by_shape=_sorted([row([r], r.shapes) for r in recorded.rows], key)
        if recorded.shapes
        else (),
        files=recorded.files,
    )


def _row(
    recorded: OperatorSnapshot,
    parts: Sequence[Operator],
    shapes: str,
    total_cpu_ns: int,
    total_device_ns: int,
) -> OperatorRow:
    self_cpu = sum(p.self_cpu_ns for p in parts)
    self_device = sum(p.self_device_ns for p in parts)
    device, memory = bool(recorded.device), recorded.memory
    return OperatorRow(
        name=parts[0].name,
        kind=parts[0].kind,
        shapes=shapes,
        calls=sum(p.calls for p in parts),
        self_cpu_ms=self_cpu / _NS_PER_MS,
        cpu_ms=sum(p.cpu_ns for p in parts) / _NS_PER_MS,
        share=self_cpu / total_cpu_ns if total_cpu_ns else None,
        self_device_ms=self_device / _NS_PER_MS if device else None,
        device_ms=sum(p.device_ns for p in parts) / _NS_PER_MS if device else None,
        device_share=self_device / total_device_ns if total_device_ns else None,
        flops=sum(p.flops for p in parts) if recorded.flops else None,
        self_cpu_bytes=sum(p.self_cpu_bytes for p in parts) if memory else None,
        cpu_bytes=sum(p.cpu_bytes for p in parts) if memory else None,
        self_device_bytes=sum(p.self_device_bytes for p in parts) if memory and device else None,
        device_bytes=sum(p.device_bytes for p in parts) if memory and device else None,
    )
