"""fastprof's cost inside the measured steps, by section."""

from fastprof.report.correct import correct
from fastprof.report.in_run import own_costs
from fastprof.report.origin import is_own
from fastprof.report.threads import training_thread
from fastprof.report.tree import top_sections
from fastprof.snapshot import Snapshot

#: The part of a step in no section.
NO_SECTION = -1

#: Cache key of a snapshot's costs.
_COSTS = "step costs"


def costs_by_section(whole: Snapshot, view: Snapshot) -> dict[int, float]:
    """Return fastprof's cost in ns over all measured steps, in the training thread.

    The keys are those of the step's top-level sections, and :data:`NO_SECTION`.  The function hook
    costs what :func:`~fastprof.report.correct.correct` subtracts from functions.  fastprof's own
    functions count where they ran, their time outside of the tree between sections.  What torch
    takes longer because it has hooks is not among the costs: where it does is unknown.
    """
    costs: dict[int, float] | None = view.known.get(_COSTS)
    if costs is None:  # a report needs it twice
        costs = view.known[_COSTS] = _by_section(whole, view)
    return costs


def costs_by_node(view: Snapshot, own_ns: float) -> tuple[list[float], float]:
    """Return fastprof's cost in ns in each node of the training thread, in all phases of ``view``.

    Sections of a report and the parts of a step leave out the same cost.

    Args:
        own_ns: the time of fastprof's own functions; they do not count more of it than that.

    Returns:
        the costs, and the rest of ``own_ns``; no costs if the hook's cost is not subtracted.
    """
    correction = correct(view)
    if not correction.applied or not view.threads:
        return [], own_ns
    number = training_thread(view)
    nodes, column = view.threads[number].nodes, correction.self_ns[number]
    owns = [is_own(key) for key in view.keys]
    tops = top_sections(nodes, view.keys)
    costs = [0.0] * len(nodes)
    for i in range(1, len(nodes)):
        if not owns[nodes.key[i]]:
            costs[i] = float(nodes.self_ns[i] - column[i])
        elif tops[i] != NO_SECTION:  # else part of the rest
            costs[i] = min(float(nodes.self_ns[i]), own_ns)
            own_ns -= costs[i]
    return costs, own_ns


def _by_section(whole: Snapshot, view: Snapshot) -> dict[int, float]:
    own_ns = own_costs(whole).timed_in_step * whole.steps.measured
    nodes_costs, rest_ns = costs_by_node(view, own_ns)
    costs = {NO_SECTION: rest_ns}
    if nodes_costs:
        tops = top_sections(view.threads[training_thread(view)].nodes, view.keys)
        for top, ns in zip(tops, nodes_costs, strict=True):
            costs[top] = costs.get(top, 0.0) + ns
    return costs
