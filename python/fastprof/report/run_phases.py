"""Phases of the run in a report: which one is shown, and what each of them took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.report.correct import HOOK
from fastprof.report.flat import subtree_sums
from fastprof.report.origin import begins_import
from fastprof.snapshot import Snapshot
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS, PhaseTime

#: Instead of a phase: the whole run.
ALL = "all"

#: A part of set-up that is a row of its own in :func:`phase_rows`.
IMPORTS = "imports"

#: Phases that steps begin and end.
_LOOP = ("setup", "warmup", "steps", "unprofiled", "outside")

#: Time beyond the steps is told of from this part of theirs on.
_BEYOND = 0.05


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase of the run: wall time in ms, and how often it began.

    ``name`` is one of ``RUN_PHASES``, or ``imports``: the modules that set-up loaded, which
    are then no part of the row ``setup``.
    """

    name: str
    wall_ms: float
    entries: int

    @property
    def mean_ms(self) -> float:
        """Wall time each time it began, in ms."""
        return self.wall_ms / max(1, self.entries)


def chosen_phase(snapshot: Snapshot, phase: str | None) -> str:
    """Return the phase that a report shows if asked for ``phase``.

    Raises:
        ValueError: there is no such phase, or nothing was recorded in it.
    """
    steps = RUN_PHASES[STEPS]
    if phase is None:
        measured = snapshot.steps.measured > 0
        return steps if measured and snapshot.phases else ALL
    if phase == ALL:
        return ALL
    recorded = [p.name for p in snapshot.phases] or [steps]
    if phase not in recorded:
        raise ValueError(
            f"nothing was recorded in a phase {phase!r:.80} of the run; "
            f"there are: {', '.join([*recorded, ALL])}"
        )
    return phase


def view_of(snapshot: Snapshot, phase: str) -> Snapshot:
    """Return what happened in ``phase``, which :func:`chosen_phase` has returned.

    Made once per snapshot and phase: a report asks several times, and has its times corrected.
    """
    if phase == ALL or not snapshot.phases:
        return snapshot
    name = f"view {phase}"
    view: Snapshot | None = snapshot.known.get(name)
    if view is None:
        view = snapshot.known[name] = snapshot.only(phase)
    if HOOK in snapshot.known:
        view.known[HOOK] = snapshot.known[HOOK]
    return view


def steps_in(phase: str, count: int, measured: int) -> int:
    """Return how many steps the functions, sections and GPU work of a report are of.

    Args:
        phase: the phase of the run that it is on.
        count: steps of the run.
        measured: those of them that were no warm-up.
    """
    return measured if phase == RUN_PHASES[STEPS] else count


def beyond_steps_ns(view: Snapshot, phase: str, thread: int) -> int:
    """Return the time in the tree of measured steps that is in no step that ended.

    What follows the last step is, where nothing told that the loop is over.  0 where it is
    too little to matter.

    Args:
        view: what happened in ``phase``.
        phase: the phase of the run.
        thread: the training thread's number.
    """
    if phase != RUN_PHASES[STEPS] or not 0 <= thread < len(view.threads):
        return 0
    # Where nothing is open it may be fastprof that works, between two steps.
    ns = sum(view.threads[thread].nodes.self_ns[1:]) - view.steps.sum_ns
    return ns if ns > _BEYOND * view.steps.sum_ns else 0


def phase_rows(snapshot: Snapshot, columns: Sequence[Sequence[int]]) -> tuple[PhaseRow, ...]:
    """Return what each phase took, in the order in which a run goes through them.

    Args:
        snapshot: the whole run.
        columns: per thread the exclusive times of its nodes in ns.
    """
    order = ("setup", "warmup", "steps", "unprofiled", "validation", "checkpoint", "outside")
    by_name = {phase.name: phase for phase in snapshot.phases}
    if by_name and not snapshot.steps.count:  # there is no loop that set-up could end with
        whole_ns = sum(by_name.pop(n).wall_ns for n in _LOOP if n in by_name)
        by_name["setup"] = PhaseTime("setup", whole_ns, 1)
    rows = []
    for name in order:
        phase = by_name.get(name)
        if phase is None:
            continue
        wall_ns = phase.wall_ns
        if name == "setup":
            imports_ns = min(wall_ns, _imports_ns(snapshot, columns))
            if imports_ns:
                rows.append(PhaseRow(IMPORTS, imports_ns / 1e6, 1))
            wall_ns -= imports_ns
        rows.append(PhaseRow(name, wall_ns / 1e6, phase.entries))
    return tuple(rows)


def _imports_ns(snapshot: Snapshot, columns: Sequence[Sequence[int]]) -> int:
    """Time below the import statements of set-up, in the thread that imported most."""
    finders = {i for i, key in enumerate(snapshot.keys) if begins_import(key.file, key.name)}
    setup = RUN_PHASES.index("setup")
    most = 0
    for tree, column in zip(snapshot.threads, columns, strict=True):
        nodes = tree.nodes
        if not nodes.phase:
            continue
        sums = subtree_sums(nodes.parent, column)
        inside = [False] * len(nodes)
        total = 0
        for i in range(1, len(nodes)):
            above = inside[nodes.parent[i]]
            inside[i] = above or (nodes.key[i] in finders and nodes.phase[i] == setup)
            if inside[i] and not above:
                total += sums[i]
        most = max(most, total)
    return most
