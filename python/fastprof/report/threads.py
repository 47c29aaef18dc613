"""Finds the training thread of a snapshot."""

from fastprof.snapshot import Snapshot


def training_thread(snapshot: Snapshot) -> int:
    """Return the number of the thread whose steps were recorded; -1: there is no thread.

    Without steps, and in runs of earlier versions, it is the thread with most time in sections or
    with most calls.
    """
    if snapshot.steps.thread is not None:
        return snapshot.steps.thread
    if snapshot.outliers is not None and 0 <= snapshot.outliers.thread < len(snapshot.threads):
        return snapshot.outliers.thread
    entered: dict[int, int] = {}
    for stats in snapshot.sections:
        entered[stats.thread] = entered.get(stats.thread, 0) + stats.outer_ns
    if entered:
        return max(entered, key=lambda thread: entered[thread])
    sizes = [sum(tree.nodes.calls) for tree in snapshot.threads]
    return max(range(len(sizes)), key=lambda i: sizes[i], default=-1)
