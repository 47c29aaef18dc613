"""The phases of the run that a page has graphs and functions of, the one shown first first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fastprof.exporters.html.limits import LIMITS, OTHER_PHASES, PageLimits
from fastprof.report.build import functions_of
from fastprof.report.model import Report
from fastprof.report.run_phases import ALL, view_of
from fastprof.snapshot_phases import RUN_PHASES

_NAMES = {
    "imports": "imports",
    "setup": "set-up",
    "warmup": "warm-up steps",
    "steps": "measured steps",
    "validation": "validation",
    "checkpoint": "checkpoints",
    "outside": "between and after epochs",
    ALL: "whole run",
}


@dataclass(frozen=True, slots=True)
class PhaseView:
    """One phase of the run: ``report`` has its contexts (``view``) and its functions."""

    name: str
    report: Report
    limits: PageLimits


def phase_name(phase: str) -> str:
    """Return what a reader calls a phase of the run."""
    return _NAMES.get(phase, phase)


def phase_views(report: Report) -> list[PhaseView]:
    """Return what is shown first, then the other phases and the whole run, cut shorter."""
    views = [PhaseView(phase_name(report.phase), report, LIMITS)]
    if not (report.has_tree and report.phases):
        return views
    recorded = {row.name for row in report.phases}
    for phase in (*RUN_PHASES, ALL):
        if phase == report.phase or phase not in recorded | {ALL}:
            continue
        view = replace(view_of(report.snapshot, phase), worker_threads=())
        functions = functions_of(view, correct_times=report.overhead.corrected)
        if functions:
            other = replace(report, view=view, phase=phase, functions=functions)
            views.append(PhaseView(phase_name(phase), other, OTHER_PHASES))
    return views
