"""The phases of the run with graphs and functions on a page, the default one first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastprof.render.html.limits import LIMITS, OTHER_PHASES, PageLimits
from fastprof.report.correct import CORRECTED, correct
from fastprof.report.functions import functions_of
from fastprof.report.model import Report
from fastprof.report.run_phases import ALL, view_of
from fastprof.snapshot import NodeTable, Snapshot
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


def _used(view: Snapshot) -> Snapshot:
    """Return the snapshot without the contexts that have nothing in the phase."""
    # All contexts tell what the hook cost, and which functions steps call.
    correction = correct(view)
    threads = []
    columns = []
    for tree, column in zip(view.threads, correction.self_ns, strict=True):
        rows = _used_rows(tree.nodes)
        threads.append(replace(tree, nodes=_only(tree.nodes, rows)))
        columns.append(tuple(column[i] for i in rows))
    used = replace(view, threads=tuple(threads))
    used.known[CORRECTED] = replace(correction, self_ns=tuple(columns))
    return used


def _used_rows(nodes: NodeTable) -> list[int]:
    used = [*map(any, zip(nodes.calls, nodes.resumes, nodes.self_ns, strict=True))]
    for i in range(len(nodes) - 1, 0, -1):
        if used[i]:
            used[nodes.parent[i]] = True
    used[0] = True
    return [i for i, is_used in enumerate(used) if is_used]


def _only(nodes: NodeTable, rows: Sequence[int]) -> NodeTable:
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
        view = view_of(report.snapshot, phase)
        if phase != ALL and view.gpu is None:  # GPU work refers to contexts by their rows
            view = _used(view)
        functions = functions_of(view, correct_times=report.overhead.corrected)
        if functions:
            other = replace(report, view=view, phase=phase, functions=functions)
            views.append(PhaseView(phase_name(phase), other, OTHER_PHASES))
    return views
