"""The phases of the run with graphs and functions on a page, the default one first."""

from dataclasses import dataclass, replace

from fastprof.render.html.limits import LIMITS, OTHER_PHASES, PageLimits
from fastprof.report.functions import functions_of
from fastprof.report.model import Report
from fastprof.report.run_phases import ALL, view_of
from fastprof.snapshot import NodeTable
from fastprof.snapshot.run_phases import RUN_PHASES
from fastprof.tables.run_phases import PHASE_NAMES


@dataclass(frozen=True, slots=True)
class PhaseView:
    """One phase of the run: ``report`` has its contexts (``view``) and its functions."""

    name: str
    report: Report
    limits: PageLimits


def phase_name(phase: str) -> str:
    """Return a phase's name for readers."""
    return "whole run" if phase == ALL else PHASE_NAMES[phase][0]


def _used(nodes: NodeTable) -> NodeTable:
    """Return the tree without the contexts that have nothing in the phase."""
    used = [*map(any, zip(nodes.calls, nodes.resumes, nodes.self_ns, strict=True))]
    for i in range(len(nodes) - 1, 0, -1):
        if used[i]:
            used[nodes.parent[i]] = True
    used[0] = True
    rows = [i for i, is_used in enumerate(used) if is_used]
    number = {i: n for n, i in enumerate(rows)}
    columns = (
        tuple(column[i] for i in rows)
        for column in (nodes.key, nodes.calls, nodes.resumes, nodes.self_ns)
    )
    return NodeTable((-1, *(number[nodes.parent[i]] for i in rows[1:])), *columns)


def phase_views(report: Report) -> list[PhaseView]:
    """Return the default phase, then the other phases and the whole run, with lower limits."""
    views = [PhaseView(phase_name(report.phase), report, LIMITS)]
    if not (report.has_tree and report.phases):
        return views
    recorded = {row.name for row in report.phases}
    for phase in (*RUN_PHASES, ALL):
        if phase == report.phase or phase not in recorded | {ALL}:
            continue
        view = replace(view_of(report.snapshot, phase), worker_threads=())
        if phase != ALL and view.gpu is None:  # GPU work refers to contexts by their rows
            threads = tuple(replace(t, nodes=_used(t.nodes)) for t in view.threads)
            view = replace(view, threads=threads)
        functions = functions_of(view, correct_times=report.overhead.corrected)
        if functions:
            other = replace(report, view=view, phase=phase, functions=functions)
            views.append(PhaseView(phase_name(phase), other, OTHER_PHASES))
    return views
