"""From the reports of single ranks to that of all; see :mod:`fastprof.report.ranks`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from fastprof.names import ascii_name
from fastprof.report.figures import duration
from fastprof.report.health import rank_health
from fastprof.report.model import UNACCOUNTED, Report
from fastprof.report.ranks import (
    SIGNALS,
    FunctionTotal,
    RankReport,
    RankRow,
    SectionSpread,
    Straggler,
    named,
)
from fastprof.report.ranks_notes import rank_notes
from fastprof.report.run_phases import steps_in
from fastprof.snapshot.fields import int_or_none, show

#: Fewer measured steps than these on any rank say nothing about who is late.
MIN_STEPS = 5
#: A rank is late if its own work exceeds that of the others by this part of the step, and
#: by so many standard errors.  Both are ours.
LATE_SHARE = 0.05
_ERRORS = 3.0
#: Ranks at least this part as late as the latest are named beside it.
_ALSO_LATE = 0.5
#: A section explains a delay if it accounts for this part of it.
_EXPLAINS = 0.25
#: No job has more ranks than these; the ones that are missing are listed one by one.
MAX_RANKS = 1_000_000
_BACKWARD = ("backward", "backward_pass")
_COMMUNICATION = frozenset(
    {"synchronization", "sync", "communication", "allreduce", "gradientsync", "barrier"}
)


# ---- one rank


def rank_row(report: Report, path: str) -> RankRow:
    """Return what one rank's report says of it; ``path`` is where it was read from.

    Raises:
        ValueError: it does not say which rank it is, or of more than :data:`MAX_RANKS`.
    """
    meta, steps = report.meta, report.steps
    rank, world = int_or_none(meta.get("rank")), int_or_none(meta.get("world_size"))
    if rank is None:
        raise ValueError("does not say of which rank it is; a saved run (.fprof) does")
    if max(rank, world or 0) > MAX_RANKS:
        raise ValueError(
            f"is of rank {show(rank)} of {show(world)}, expected at most {MAX_RANKS} ranks"
        )
    host, memory = meta.get("hostname"), report.memory
    use = None if report.gpu is None else report.gpu.use
    spans = [d.steps for d in report.gpu.devices if d.steps] if report.gpu is not None else []
    n, counted = steps.measured, steps_in(report.phase, steps.count, steps.measured)
    return RankRow(
        rank=rank,
        world_size=world,
        host=host if isinstance(host, str) else None,
        path=path,
        steps=n,
        skipped=steps.skipped,
        step_ms=steps.mean_ms,
        p95_ms=steps.p95_ms,
        cv=steps.cv,
        sections=tuple((r.name, r.mean_ms) for r in steps.rows if r.name != UNACCOUNTED),
        waits=tuple(_waits(report).items()),
        gpu_utilization=None if report.gpu is None else report.gpu.utilization,
        gpu_compute_ms=sum(s.compute_ns for s in spans) / n / 1e6 if spans and n else None,
        gpu_communication_ms=sum(s.communication_ns for s in spans) / n / 1e6
        if spans and n
        else None,
        gpu_waits=use.syncs / counted if use is not None and counted else None,
        memory_bytes=None if memory is None else memory.peak_reserved,
        memory_total_bytes=None if memory is None else memory.total_bytes,
        setup=_setup(report),
        **rank_health(() if report.gpu is None else report.gpu.devices),
    )


def _waits(report: Report) -> dict[str, float]:
    """Time per step waiting for other ranks, by signal."""
    steps, found = report.steps, {}
    n = steps.measured
    if not n or steps.mean_ms is None:
        return {}
    spans = [d.steps for d in report.gpu.devices if d.steps] if report.gpu is not None else []
    if any(span.communication_ns for span in spans):
        # Devices of one process work side by side: the one that communicates longest.
        found["gpu"] = max(s.communication_ns - s.overlap_ns for s in spans) / n / 1e6
    for row in steps.split:
        if row.name == "communication" and row.total_ns:
            found["split"] = row.mean_ms
    communication = [r.mean_ms for r in steps.rows if is_communication(r.name)]
    if communication:
        found["sections"] = sum(communication)
    if any(r.name in _BACKWARD for r in steps.rows):
        # What is in no section may be waiting, too.
        maybe = [r.mean_ms for r in steps.rows if r.name in (*_BACKWARD, UNACCOUNTED)]
        found["backward"] = sum(maybe)
    return found


def is_communication(section: str) -> bool:
    """Whether a section's name says that it waits for other ranks."""
    return "".join(c for c in section.lower() if c.isalnum()) in _COMMUNICATION


def _setup(report: Report) -> tuple[tuple[str, str], ...]:
    meta = report.meta
    found = {
        "functions recorded": meta.get("functions"),
        "sections synchronized": meta.get("sync"),
        "GPU observed": None if report.gpu is None else report.gpu.status == "on",
        "warm-up steps": report.steps.skipped,
        "Python": meta.get("python"),
        "hook backend": meta.get("backend"),
    }
    for row in report.loaders:
        if row.split == "train" and row.workers is not None:
            name = ascii_name(row.name, 40)
            found[f"workers of loader {name}"] = row.workers.workers
            found[f"batch size of loader {name}"] = row.workers.batch_size
    words = {True: "yes", False: "no", None: "n/a"}
    return tuple(
        (what, words[v] if isinstance(v, bool) or v is None else ascii_name(str(v), 60))
        for what, v in found.items()
    )


# ---- all ranks


def rank_report(rows: Sequence[RankRow], functions: Sequence[FunctionTotal] = ()) -> RankReport:
    """Put the ranks of one job beside each other.

    Raises:
        ValueError: no rank, a rank twice, or ranks of jobs of different size.
    """
    rows = sorted(rows, key=lambda r: r.rank)
    world = _world_size(rows)
    known = {row.rank for row in rows}
    missing = () if world is None else tuple(r for r in range(world) if r not in known)
    signal, works = _own_work(rows)
    straggler, why_not = _straggler(rows, works)
    return RankReport(
        rows=tuple(rows),
        world_size=world,
        missing=missing,
        sections=_spreads(rows),
        signal=signal,
        work_ms=tuple(works),
        imbalance=max(works) / fmean(works) - 1 if works and fmean(works) > 0 else None,
        straggler=straggler,
        functions=tuple(functions),
        notes=tuple(rank_notes(rows, missing, signal, works, why_not)),
    )


def _world_size(rows: Sequence[RankRow]) -> int | None:
    if not rows:
        raise ValueError("no ranks to merge")
    for a, b in pairwise(rows):
        if a.rank == b.rank:
            hint = ""
            if not a.rank and (a.world_size or 1) == 1:
                hint = "; each process tells its rank by RANK or Profiler(rank=...)"
            raise ValueError(f"rank {a.rank} is in two files: {a.path!a} and {b.path!a}{hint}")
    sizes = {row.world_size: row for row in rows if (row.world_size or 1) > 1}
    if len(sizes) > 1:
        (size, row), (other, of) = list(sizes.items())[:2]
        raise ValueError(
            f"these are ranks of different jobs: {row.path!a} is of {size} ranks, {of.path!a} of "
            f"{other}"
        )
    size = next(iter(sizes), None)
    return size if size is not None and size > rows[-1].rank else None


def _own_work(rows: Sequence[RankRow]) -> tuple[str, list[float]]:
    """The signal that tells waiting, and own work per rank; none if a rank has no steps."""
    if len(rows) < 2 or any(row.step_ms is None for row in rows):
        return "none", []
    waits = [dict(row.waits) for row in rows]
    for signal in SIGNALS:
        if signal == "none" or all(signal in found for found in waits):
            return signal, [
                max(0.0, (row.step_ms or 0.0) - found.get(signal, 0.0))
                for row, found in zip(rows, waits, strict=True)
            ]
    raise AssertionError


def _straggler(rows: Sequence[RankRow], works: Sequence[float]) -> tuple[Straggler | None, str]:
    """The rank that is late; else None and why not."""
    if not works:
        if len(rows) < 2:
            return None, "One rank alone waits for nobody."
        without = [row.rank for row in rows if row.step_ms is None]
        return None, f"Who is late is not known: no steps were measured in {named(without)}."
    few = [row.rank for row in rows if row.steps < MIN_STEPS]
    if few:
        return None, (
            f"Who is late is not known: fewer than {MIN_STEPS} steps were measured in {named(few)}."
        )
    latest = max(range(len(rows)), key=lambda i: works[i])
    others = [i for i in range(len(rows)) if i != latest]
    usual = median(works[i] for i in others)
    late = works[latest] - usual
    step = fmean(row.step_ms or 0.0 for row in rows)
    errors = [(r.step_ms or 0.0) * (r.cv or 0.0) / math.sqrt(r.steps) for r in rows]
    error = math.hypot(errors[latest], median(errors[i] for i in others))
    if not step or late < LATE_SHARE * step or late <= _ERRORS * error:
        return None, (
            f"No rank is late: the most own work, that of rank {rows[latest].rank}, is "
            f"{duration(max(late, 0.0))} per step above the others' median."
        )
    section, here, there = _cause(rows, latest, others, late)
    return Straggler(
        rank=rows[latest].rank,
        host=rows[latest].host,
        work_ms=works[latest],
        others_ms=usual,
        late_ms=late,
        late_share=late / step,
        section=section,
        section_ms=here,
        section_others_ms=there,
        waits=tuple((rows[i].rank, works[latest] - works[i]) for i in others),
        also=tuple(rows[i].rank for i in others if works[i] - usual >= _ALSO_LATE * late),
    ), ""


def _cause(
    rows: Sequence[RankRow], latest: int, others: Sequence[int], late: float
) -> tuple[str | None, float | None, float | None]:
    """Where the late rank loses most: a section, or the GPU."""
    found: list[tuple[float, str, float, float]] = []

    def compare(name: str, here: float | None, there: list[float | None]) -> None:
        known = [ms for ms in there if ms is not None]
        if here is not None and known:
            usual = median(known)
            found.append((here - usual, name, here, usual))

    for name, here in rows[latest].sections:
        if not is_communication(name):
            # A section that the others do not have takes them no time.
            compare(name, here, [dict(rows[i].sections).get(name, 0.0) for i in others])
    best = max(found, default=None)
    if best is None or best[0] < _EXPLAINS * late:
        compare("GPU", rows[latest].gpu_compute_ms, [rows[i].gpu_compute_ms for i in others])
        best = max(found, default=None)
    if best is None or best[0] < _EXPLAINS * late:
        return None, None, None
    return best[1:]


def _spreads(rows: Sequence[RankRow]) -> tuple[SectionSpread, ...]:
    found: dict[str, list[tuple[float, int]]] = {}
    for row in rows:
        for name, ms in row.sections:
            found.setdefault(name, []).append((ms, row.rank))
    out = []
    for name, values in found.items():
        (low, low_rank), (high, high_rank) = min(values), max(values)
        mean = fmean(ms for ms, _ in values)
        out.append(SectionSpread(name, len(values), mean, low, low_rank, high, high_rank))
    return tuple(out)
