"""The steps one by one, and what their time was spent on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StepSeriesView:
    """The last measured steps (at most 4096), oldest first; columns of equal length.

    ``first`` is the 0-based index of the first one among all steps.  ``names`` maps each
    top-level section to its ms in each step (0 where it did not run).  ``start_ms`` is
    since the recording began, ``cpu_ms`` is CPU time of the training thread, ``gc_ms``
    garbage collection in it, ``switches`` involuntary context switches, ``faults`` major
    page faults.  A column that is not known is empty.
    """

    first: int = 0
    start_ms: tuple[float, ...] = ()
    wall_ms: tuple[float, ...] = ()
    names: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    cpu_ms: tuple[float, ...] = ()
    gc_ms: tuple[float, ...] = ()
    switches: tuple[int, ...] = ()
    faults: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.wall_ms)


@dataclass(frozen=True, slots=True)
class SplitRow:
    """One kind of time in the measured steps; see ``fastprof.snapshot_steps.SPLIT_KINDS``.

    ``mean_ms`` is per measured step, ``share`` of the steps' wall time.  ``places`` are
    (function, line or section; ns), largest first.
    """

    name: str
    total_ns: int
    mean_ms: float
    share: float | None
    places: tuple[tuple[str, int], ...] = ()

    @property
    def total_ms(self) -> float:
        """Time over all measured steps in ms."""
        return self.total_ns / 1e6
