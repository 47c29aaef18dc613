"""The stages of a run in a report."""

from dataclasses import dataclass

from fastprof.report.rows import UNACCOUNTED
from fastprof.snapshot import Snapshot
from fastprof.snapshot.stages import Stage


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage: its steps, as measured.

    ``sections`` are the top-level sections and the rest, as (name, ms per step, share of the step);
    none: they are unknown.
    """

    name: str
    first: int
    steps: int
    mean_ms: float
    p50_ms: float
    p95_ms: float
    sections: tuple[tuple[str, float, float], ...]
    optimizer: str
    loader: str

    def share(self, *sections: str) -> float:
        """Return the share of sections in a step of this stage."""
        return sum(share for name, _, share in self.sections if name in sections)

    @property
    def of(self) -> str:
        """Its optimizer and loader."""
        parts = (self.optimizer or "no optimizer", self.loader)
        return ", ".join(part for part in parts if part)


def stage_rows(snapshot: Snapshot) -> tuple[StageRow, ...]:
    """Return the stages with measured steps; none if there are fewer than two."""
    rows = tuple(
        _row(f"stage {i}", stage) for i, stage in enumerate(snapshot.stages or (), 1) if stage.timed
    )
    return rows if len(rows) > 1 else ()


def _row(name: str, stage: Stage) -> StageRow:
    n, whole = stage.timed, max(1, stage.sum_ns)
    rest = max(0, stage.sum_ns - sum(ns for _, ns in stage.sections))
    return StageRow(
        name=name,
        first=stage.first,
        steps=stage.steps,
        mean_ms=stage.sum_ns / n / 1e6,
        p50_ms=stage.p50_ns / 1e6,
        p95_ms=stage.p95_ns / 1e6,
        sections=tuple(
            (section, ns / n / 1e6, ns / whole)
            for section, ns in (*stage.sections, (UNACCOUNTED, rest))
            if stage.sections
        ),
        optimizer=stage.optimizer,
        loader=stage.loader,
    )
