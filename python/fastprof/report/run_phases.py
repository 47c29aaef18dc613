"""Phases of the run in a report: which one the report shows, and the time of each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastprof.report.correct import HOOK, correct
from fastprof.report.origin import begin_imports
from fastprof.report.tree import at_or_below
from fastprof.snapshot import NodeTable, Snapshot
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS, PhaseTime

#: Instead of a phase: the whole run.
ALL = "all"

#: A part of set-up with a separate row in :func:`phase_rows`.
IMPORTS = "imports"

#: Phases that begin and end with steps.
_LOOP = ("setup", "warmup", "steps", "unprofiled", "outside", "unhooked", "windows")

#: Those without the function hook.
_PLAIN = ("unprofiled", "unhooked")

_UNHOOKED, _WINDOWS = RUN_PHASES.index("unhooked"), RUN_PHASES.index("windows")

#: Cache key of a snapshot whose windows are scaled.
_SCALED = "scaled windows"

#: Fewer plain steps show nothing.
_LEAST_PLAIN = 20

#: Time beyond the steps is reported if it is at least this part of their time.
_BEYOND = 0.05


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase of the run: wall time in ms, and how often it began.

    ``name`` is one of ``RUN_PHASES``, or ``imports``: loading modules during set-up, which the row
    ``setup`` then leaves out.
    """

    name: str
    wall_ms: float
    entries: int

    @property
    def mean_ms(self) -> float:
        """Mean wall time per entry in ms."""
        return self.wall_ms / max(1, self.entries)


def chosen_phase(snapshot: Snapshot, phase: str | None) -> str:
    """Return the phase that a report shows for the choice ``phase``.

    Raises:
        ValueError: there is no such phase, or it is empty.
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


def is_scaled(snapshot: Snapshot, phase: str) -> bool:
    """Return whether a report of ``phase`` scales functions of windows of time to the run."""
    return phase == ALL and not snapshot.steps.count and snapshot.phase_ns("windows") > 0


def view_of(snapshot: Snapshot, phase: str) -> Snapshot:
    """Return the part of a snapshot in ``phase``, a result of :func:`chosen_phase`.

    Cached per snapshot and phase, because a report needs it, and its corrected times, repeatedly.
    """
    if is_scaled(snapshot, phase):
        return _scaled(snapshot)
    if phase == ALL or not snapshot.phases:
        return snapshot
    return _only(snapshot, phase)


def _only(snapshot: Snapshot, *phases: str) -> Snapshot:
    name = f"view {' '.join(phases)}"
    view: Snapshot | None = snapshot.known.get(name)
    if view is None:
        view = snapshot.known[name] = snapshot.only(*phases)
    if HOOK in snapshot.known:
        view.known[HOOK] = snapshot.known[HOOK]
    return view


def plain_are_most(snapshot: Snapshot) -> bool:
    """Return whether a budget left functions out of most steps: tables of steps then show those."""
    plain = snapshot.plain_steps
    if plain is None or "overhead_budget" not in snapshot.meta:
        return False
    return plain.measured >= max(_LEAST_PLAIN, snapshot.steps.measured)


def with_functions(snapshot: Snapshot) -> Snapshot:
    """Return the part of a run in which functions were recorded, if a budget limited it.

    The rest would count for whatever function was open when it began.
    """
    if "overhead_budget" not in snapshot.meta:
        return snapshot
    correct(snapshot)
    return _only(snapshot, *(name for name in RUN_PHASES if name not in _PLAIN))


def _scaled(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the times and calls of windows scaled to the time around them."""
    view: Snapshot | None = snapshot.known.get(_SCALED)
    if view is None:
        windows_ns, unhooked_ns = snapshot.phase_ns("windows"), snapshot.phase_ns("unhooked")
        factor = 1.0 + unhooked_ns / max(1, windows_ns - _hook_ns(snapshot))
        threads = [replace(t, nodes=_scaled_nodes(t.nodes, factor)) for t in snapshot.threads]
        view = snapshot.known[_SCALED] = replace(snapshot, threads=tuple(threads))
    if HOOK in snapshot.known:
        view.known[HOOK] = snapshot.known[HOOK]
    return view


def _hook_ns(snapshot: Snapshot) -> int:
    """Return what the hook cost in windows, in the thread where it cost most.

    Time without the hook has no such cost, so a window's time stands for more of it.
    """
    columns = correct(snapshot).self_ns
    return max(
        (
            round(
                sum(
                    raw - corrected
                    for raw, corrected, of in zip(
                        tree.nodes.self_ns, column, tree.nodes.phase, strict=True
                    )
                    if of == _WINDOWS
                )
            )
            for tree, column in zip(snapshot.threads, columns, strict=True)
            if tree.nodes.phase
        ),
        default=0,
    )


def _scaled_nodes(nodes: NodeTable, factor: float) -> NodeTable:
    if not nodes.phase or not nodes.idle_ns:
        return nodes
    calls, resumes, self_ns = (
        [
            round(n * factor) if of == _WINDOWS else n
            for n, of in zip(column, nodes.phase, strict=True)
        ]
        for column in (nodes.calls, nodes.resumes, nodes.self_ns)
    )
    idle = list(nodes.idle_ns)
    # In another thread's place the time without the hook was spent in some function, too.
    idle[_WINDOWS], idle[_UNHOOKED] = round(idle[_WINDOWS] * factor), 0
    self_ns[0] = sum(idle)
    return replace(
        nodes, calls=tuple(calls), resumes=tuple(resumes), self_ns=tuple(self_ns),
        idle_ns=tuple(idle),
    )  # fmt: skip


def steps_in(phase: str, count: int, measured: int) -> int:
    """Return the number of steps that the functions, sections and GPU work of a report cover.

    Args:
        measured: steps without the warm-up.
    """
    return measured if phase == RUN_PHASES[STEPS] else count


def between_steps_ns(view: Snapshot, thread: int) -> int:
    """Return the time between measured steps in which fastprof works, outside of all functions.

    As recorded: the steps' time, too, includes the hook's cost.

    Args:
        view: the part of a snapshot in measured steps.
        thread: the training thread's number.
    """
    nodes = view.threads[thread].nodes
    return min(max(0, sum(nodes.self_ns) - view.steps.sum_ns), nodes.self_ns[0])


def beyond_steps_ns(view: Snapshot, phase: str, thread: int) -> int:
    """Return the time in the tree of measured steps that no completed step contains.

    It includes the time after the last step if nothing marks the end of the loop. 0 if it is
    negligible.

    Args:
        view: the snapshot's part in ``phase``.
        thread: the training thread's number.
    """
    if phase != RUN_PHASES[STEPS] or not 0 <= thread < len(view.threads):
        return 0
    # Outside of all functions it may be fastprof that works, between two steps.
    ns = sum(view.threads[thread].nodes.self_ns[1:]) - view.steps.sum_ns
    return ns if ns > _BEYOND * view.steps.sum_ns else 0


def phase_rows(snapshot: Snapshot, columns: Sequence[Sequence[int]]) -> tuple[PhaseRow, ...]:
    """Return the time of each phase, in the order of a run.

    Args:
        columns: per thread the exclusive times of its nodes in ns.
    """
    order = (
        "setup", "warmup", "steps", "unprofiled", "validation", "checkpoint", "outside", "compile",
    )  # fmt: skip
    by_name = {phase.name: phase for phase in snapshot.phases}
    for name in ("unhooked", "windows"):  # parts of set-up
        if snapshot.steps.count and name in by_name:
            setup = by_name.get("setup", PhaseTime("setup", 0, 1))
            by_name["setup"] = replace(setup, wall_ns=setup.wall_ns + by_name[name].wall_ns)
    if by_name and not snapshot.steps.count:  # no loop, so nothing ends set-up
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
    """Return the time below set-up's import statements, in the thread that imported most."""
    finds = begin_imports(snapshot.keys)
    setup = RUN_PHASES.index("setup")
    most = 0
    for tree, column in zip(snapshot.threads, columns, strict=True):
        nodes = tree.nodes
        if not nodes.phase:
            continue
        rows = zip(column, at_or_below(nodes, finds), nodes.phase, strict=True)
        most = max(most, sum([ns for ns, below, phase in rows if below and phase == setup]))
    return most
