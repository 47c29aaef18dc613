"""fastprof's cost inside the measured steps, by section."""

from fastprof.report.correct import correct
from fastprof.report.flat import top_sections
from fastprof.report.functions import thread_of_steps
from fastprof.report.in_run import own_costs
from fastprof.report.origin import is_own
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


def _by_section(whole: Snapshot, view: Snapshot) -> dict[int, float]:
    correction = correct(view)
    own_ns = own_costs(whole).timed_in_steps
    costs = {NO_SECTION: 0.0}
    if correction.applied and view.threads:
        number = thread_of_steps(view)
        nodes, column = view.threads[number].nodes, correction.self_ns[number]
        owns = [is_own(key) for key in view.keys]
        tops = top_sections(nodes, view.keys)
        for i in range(1, len(nodes)):
            if not owns[nodes.key[i]]:
                ns = float(nodes.self_ns[i] - column[i])
            elif tops[i] == NO_SECTION:
                continue  # part of the rest
            else:
                ns = min(float(nodes.self_ns[i]), own_ns)
                own_ns -= ns
            costs[tops[i]] = costs.get(tops[i], 0.0) + ns
    costs[NO_SECTION] += own_ns
    return costs
