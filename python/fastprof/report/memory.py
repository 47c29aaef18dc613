"""The GPU memory's part of a report."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import median

from fastprof.report.model_gpu import MemoryParts, MemoryReport, MemorySectionRow
from fastprof.snapshot import Snapshot
from fastprof.snapshot.memory import MemorySample, MemorySection, MemorySnapshot

#: Samples for the slope; the number of their pairs grows with the square.
_MAX_POINTS = 256


def memory_report(snapshot: Snapshot) -> MemoryReport | None:
    """Return the report's part about memory; None if it was not recorded."""
    memory = snapshot.memory
    if memory is None:
        return None
    taken = memory.steps
    # Samples may be fewer than steps; calls count from the start.
    steps = snapshot.steps.count
    return MemoryReport(
        device=memory.device,
        total_bytes=memory.total_bytes,
        current_allocated=memory.current_allocated,
        current_reserved=memory.current_reserved,
        peak_allocated=memory.peak_allocated,
        peak_reserved=memory.peak_reserved,
        share=memory.peak_reserved / memory.total_bytes if memory.total_bytes else None,
        sample_count=taken,
        mean_peak_allocated=memory.sum_peak_allocated / taken
        if taken and memory.peaks_reset
        else None,
        grown_bytes=memory.last_allocated - memory.first_allocated if taken else None,
        slope_bytes_per_step=_slope(memory.samples),
        rising=_rising(memory.samples),
        retries=memory.retries,
        ooms=memory.ooms,
        device_allocs=memory.device_allocs,
        device_frees=memory.device_frees,
        device_allocs_per_step=memory.device_allocs / steps if steps else None,
        device_frees_per_step=memory.device_frees / steps if steps else None,
        peaks_reset=memory.peaks_reset,
        samples=memory.samples,
        sections=_sections(snapshot, memory.sections),
        parts=_parts(memory),
    )


def _parts(memory: MemorySnapshot) -> MemoryParts | None:
    """Divide the peak; None if its parts exceed it: they did not exist at the same time."""
    if memory.parts is None or sum(memory.parts) > memory.peak_allocated:
        return None
    return MemoryParts(*memory.parts, activations=memory.peak_allocated - sum(memory.parts))


def _slope(samples: Sequence[MemorySample]) -> float | None:
    """Return the median of the slopes between all pairs of samples (Theil-Sen)."""
    every = -(-len(samples) // _MAX_POINTS) or 1
    points = [(s.step, s.allocated) for s in samples[::every]]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1 :]]
    return median(slopes) if slopes else None


def _rising(samples: Sequence[MemorySample]) -> float | None:
    pairs = list(pairwise(samples))
    return sum(b.allocated > a.allocated for a, b in pairs) / len(pairs) if pairs else None


def _sections(
    snapshot: Snapshot, sections: Sequence[MemorySection]
) -> tuple[MemorySectionRow, ...]:
    own = _own_growth(snapshot, {s.name: s.grown_bytes for s in sections})
    return tuple(MemorySectionRow(**asdict(s), self_grown_bytes=own[s.name]) for s in sections)


def _own_growth(snapshot: Snapshot, grown: Mapping[str, int]) -> dict[str, int | None]:
    """Return the growth without that of directly nested sections; None: the tree does not tell."""
    above = _enclosing(snapshot)
    own: dict[str, int | None] = dict(grown)
    for name, growth in grown.items():
        outer = above.get(name, set())
        if len(outer) == 1:
            (only,) = outer
            left = own.get(only) if only is not None else None
            if only is not None and only != name and left is not None:
                own[only] = left - growth
            continue
        for each in outer:  # its growth cannot be split between them
            if each in own:
                own[each] = None
    return own


def _enclosing(snapshot: Snapshot) -> dict[str, set[str | None]]:
    """Return the sections directly around each section, by name; None: the top level."""
    found: dict[str, set[str | None]] = {}
    for tree in snapshot.threads:
        nodes = tree.nodes
        inside: list[str | None] = [None] * len(nodes)
        for i in range(1, len(nodes)):
            key = snapshot.keys[nodes.key[i]]
            inside[i] = inside[nodes.parent[i]]
            if key.kind == "section":
                if key.name != inside[i]:  # recursion is part of the section itself
                    found.setdefault(key.name, set()).add(inside[i])
                inside[i] = key.name
    return found
