"""Estimates how much of the time in loading, and outside of it, remains without the hook.

Loading is often a Python loop with many calls, and the rest of a step a few long calls: then
recording makes loading slower and the rest hardly.
"""

from fastprof.report.correct import without_hook
from fastprof.report.phase_names import DATA
from fastprof.report.threads import training_thread
from fastprof.report.tree import at_or_below
from fastprof.snapshot import Snapshot

#: A smaller part is the error of the estimate rather than time of the program.
_LEAST = 0.05


def unhooked_parts(snapshot: Snapshot) -> tuple[float, float]:
    """Return the parts of a step's loading, and of its rest, that remain without the hook."""
    thread = training_thread(snapshot)
    if not 0 <= thread < len(snapshot.threads):
        return 1.0, 1.0
    nodes, plain = snapshot.threads[thread].nodes, without_hook(snapshot)[thread]
    loads = [key.kind == "section" and key.name in DATA for key in snapshot.keys]
    phase = nodes.phase or (0,) * len(nodes)
    sums = [[0.0, 0.0], [0.0, 0.0]]
    for i, inside in enumerate(at_or_below(nodes, loads)):
        if phase[i] == 0:
            of = sums[inside]
            of[0] += nodes.self_ns[i]
            of[1] += plain[i]
    rest, loading = (min(1.0, left / whole) if whole > 0 else 1.0 for whole, left in sums)
    if min(rest, loading) < _LEAST:
        return 1.0, 1.0  # the estimated cost of the hook is nearly all of it, or more: unknown
    return loading, rest
