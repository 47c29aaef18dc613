"""Finds late ranks by the means of whole runs, for files without single steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from fastprof.report.figures import duration
from fastprof.report.ranks.cause import function_excess, most_of
from fastprof.report.ranks.judge import LATE_SHARE
from fastprof.report.ranks.model import RankRow, Straggler
from fastprof.report.ranks.row import RankRun, is_communication
from fastprof.report.ranks.verdict import ALSO_LATE, BLIND, Verdict, gpu_section, nobody_late

#: A rank is late if its delay is at least this many standard errors.
_ERRORS = 3.0


def by_means(runs: Sequence[RankRun]) -> Verdict:
    """Judge by the means over all steps; this cannot remove the noise that ranks share."""
    rows = [run.row for run in runs]
    signal, works = _own_work(rows)
    verdict = Verdict(signal=signal, works=works)
    latest = max(range(len(rows)), key=lambda i: works[i])
    others = [i for i in range(len(rows)) if i != latest]
    usual = median(works[i] for i in others)
    late = works[latest] - usual
    step = fmean(row.step_ms or 0.0 for row in rows)
    errors = [(r.step_ms or 0.0) * (r.cv or 0.0) / math.sqrt(r.steps) for r in rows]
    error = math.hypot(errors[latest], median(errors[i] for i in others))
    seen_from = max(LATE_SHARE * step, _ERRORS * error)
    if not step or late < seen_from:
        if step and seen_from <= BLIND * step:
            verdict.seen_from_ms = seen_from
            verdict.why_not = nobody_late(rows[latest].rank, late)
        else:
            verdict.why_not = (
                "Who is late is not known: steps vary so much that only a rank late by "
                f"{duration(seen_from)} per step would have been seen."
            )
        return verdict
    sections = [
        {name: ms for name, ms in row.sections if not is_communication(name)} for row in rows
    ]
    section = most_of(sections[latest], [sections[i] for i in others], late)
    if section[0] is None:
        section = gpu_section(rows, latest, others, late)
    verdict.straggler = Straggler(
        rank=rows[latest].rank,
        host=rows[latest].host,
        work_ms=works[latest],
        others_ms=usual,
        late_ms=late,
        late_share=late / step,
        section=section[0],
        section_ms=section[1],
        section_others_ms=section[2],
        waits=tuple((rows[i].rank, works[latest] - works[i]) for i in others),
        also=tuple(rows[i].rank for i in others if works[i] - usual >= ALSO_LATE * late),
        signal=signal,
        functions=function_excess(runs[latest], [runs[i] for i in others], late),
    )
    return verdict


def _own_work(rows: Sequence[RankRow]) -> tuple[str, list[float]]:
    """Return the signal that shows most of the waiting, and own work per rank."""
    waits = [dict(row.waits) for row in rows]
    found = [s for s in ("gpu", "split", "sections", "backward") if all(s in w for w in waits)]
    found = found[:1] if "gpu" in found else found
    works = {
        signal: [
            max(0.0, (row.step_ms or 0.0) - of.get(signal, 0.0))
            for row, of in zip(rows, waits, strict=True)
        ]
        for signal in found
    }
    if not works:
        return "none", [row.step_ms or 0.0 for row in rows]
    # A signal that shows little of the waiting makes the ranks look alike.
    return max(works.items(), key=lambda item: max(item[1]) - median(item[1]))
