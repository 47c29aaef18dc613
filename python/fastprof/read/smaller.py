"""Makes a recording small enough for a reader's limits.

The contexts with most time keep their place in the tree.  The calls and the own time of every other
context go to flat rows below a ``(truncated)`` node, one per function, as calls beyond the
recorder's own limits do, so all sums stay exact.  The functions with least time become one.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from fastprof.report.figures import plural
from fastprof.report.tree import subtree_sums
from fastprof.snapshot import Key, NodeTable, Snapshot, ThreadTree
from fastprof.snapshot.gpu import GpuSnapshot
from fastprof.snapshot.outliers import OutlierRow

OTHER_FUNCTIONS = "(other functions)"

#: Per kind of function, the file of the one that stands for many.
_FILES = {"python": "<other functions>", "c": "~", "type": "~"}


#: Up to this many functions keep their rows: the contexts need more room.
_ALL_FUNCTIONS = 50_000


def smaller(snapshot: Snapshot, part: float) -> Snapshot:
    """Return the recording with about ``part`` (of 1) of its contexts and functions.

    Without its trace, whose events belong to all functions.
    """
    whole = _sizes(snapshot)
    trees = (*snapshot.threads, *snapshot.worker_threads)
    functions = max(int(part * whole[1]), _ALL_FUNCTIONS)
    made = _with_functions(replace(snapshot, trace=None), trees, functions)
    made = _with_contexts(made, int(part * whole[0]))
    left = _sizes(made)
    note = (
        f"The saved run has the calling contexts with most time, {left[0]:,} of {whole[0]:,}, and "
        f"{left[1]:,} of {plural(whole[1], 'function')}: fastprof reads no larger file. "
        "The calls and own times of the others are counted without their callers."
    )
    return replace(made, notes=(*snapshot.notes, note))


def _sizes(snapshot: Snapshot) -> tuple[int, int]:
    trees = (*snapshot.threads, *snapshot.worker_threads)
    functions = sum(key.kind in _FILES for key in snapshot.keys)
    return sum(len(t.nodes) for t in trees), functions


def _with_functions(snapshot: Snapshot, trees: Sequence[ThreadTree], most: int) -> Snapshot:
    """Return it with one key per kind for all but the ``most`` functions with most own time."""
    keys = snapshot.keys
    own_ns = [0] * len(keys)
    for tree in trees:
        for key, ns in zip(tree.nodes.key, tree.nodes.self_ns, strict=True):
            own_ns[key] += ns
    functions = [i for i, key in enumerate(keys) if key.kind in _FILES]
    functions.sort(key=lambda i: -own_ns[i])
    others = set(functions[max(0, most) :])
    new: list[Key] = []
    other: dict[str, int] = {}
    numbers = [0] * len(keys)
    for i, one in enumerate(keys):
        if i not in others:
            numbers[i] = len(new)
            new.append(one)
        else:
            if one.kind not in other:
                other[one.kind] = len(new)
                file = _FILES[one.kind]
                new.append(Key(one.kind, file, 0, OTHER_FUNCTIONS, OTHER_FUNCTIONS))
            numbers[i] = other[one.kind]
    made: Snapshot = snapshot.renumbered({"keys": numbers})
    return replace(made, keys=tuple(new))


def _with_contexts(snapshot: Snapshot, most: int) -> Snapshot:
    keys = list(snapshot.keys)
    head = next((i for i, key in enumerate(keys) if key.kind == "truncated"), len(keys))
    if head == len(keys):
        keys.append(Key("truncated", "", 0, "(truncated)", "(truncated)"))
    beyond = [key.kind == "truncated" for key in keys]
    trees = (*snapshot.threads, *snapshot.worker_threads)
    sums = [subtree_sums(t.nodes.parent, t.nodes.self_ns) for t in trees]
    ranked = sorted(chain.from_iterable(sums), reverse=True)
    least = ranked[most] if 0 <= most < len(ranked) else -1
    # A context takes no less than its callees, so the callers of one above the limit are above it.
    folded = [
        _folded(tree.nodes, [ns > least for ns in of_tree], beyond, head)
        for tree, of_tree in zip(trees, sums, strict=True)
    ]
    made = [replace(tree, nodes=nodes) for tree, (nodes, _) in zip(trees, folded, strict=True)]
    count = len(snapshot.threads)
    return _with_places(
        replace(
            snapshot,
            keys=tuple(keys),
            threads=tuple(made[:count]),
            worker_threads=tuple(made[count:]),
        ),
        [places for _, places in folded[:count]],
    )


def _folded(
    nodes: NodeTable, kept: Sequence[bool], beyond: Sequence[bool], head: int
) -> tuple[NodeTable, list[int]]:
    """Return the tree, and the new row of each of its nodes.

    Args:
        beyond: per key, whether it stands for contexts beyond the recorder's limits.
        head: such a key.
    """
    phases = nodes.phase or (0,) * len(nodes)
    columns = nodes.parent, nodes.key, nodes.calls, nodes.resumes, nodes.self_ns, phases
    made: list[list[int]] = [[column[0]] for column in columns]
    flat: dict[tuple[int, int, int], int] = {}
    places = [0]

    def flat_row(above: int, key: int, phase: int) -> int:
        found = flat.get((above, key, phase))
        if found is None:
            found = flat[above, key, phase] = len(made[0])
            for column, value in zip(made, (above, key, 0, 0, 0, phase), strict=True):
                column.append(value)
        return found

    for keep, *row in islice(zip(kept, *columns, strict=True), 1, None):
        if keep:
            row[0] = places[row[0]]
            places.append(len(made[0]))
            for column, value in zip(made, row, strict=True):
                column.append(value)
            continue
        _above, key, *counted, phase = row
        place = flat_row(0, head, phase)
        if not beyond[key]:
            place = flat_row(place, key, phase)
        places.append(place)
        for column, value in zip(made[2:5], counted, strict=True):
            column[place] += value
    parent, keys, calls, resumes, self_ns, phase_column = map(tuple, made)
    phase_column = phase_column if nodes.phase else ()
    return (
        NodeTable(parent, keys, calls, resumes, self_ns, phase_column, nodes.idle_ns),
        places,
    )


def _with_places(snapshot: Snapshot, places: Sequence[Sequence[int]]) -> Snapshot:
    """Return it with the new rows of all nodes to which its other parts refer."""
    steps, outliers, gpu = snapshot.steps, snapshot.outliers, snapshot.gpu
    steps = replace(
        steps,
        split_places=tuple([replace(p, node=places[p.thread][p.node]) for p in steps.split_places]),
    )
    if outliers is not None:
        of_thread = places[outliers.thread]
        kept = []
        for step in outliers.kept:
            rows: dict[int, OutlierRow] = {}
            for one in step.rows:
                node = of_thread[one.node]
                rows[node] = (
                    replace(one, node=node)
                    if node not in rows
                    else replace(
                        rows[node],
                        self_ns=rows[node].self_ns + one.self_ns,
                        calls=rows[node].calls + one.calls,
                        resumes=rows[node].resumes + one.resumes,
                        usual_ns=rows[node].usual_ns + one.usual_ns,
                        usual_calls=rows[node].usual_calls + one.usual_calls,
                    )
                )
            kept.append(replace(step, rows=tuple(rows.values())))
        outliers = replace(outliers, kept=tuple(kept))
    return replace(
        snapshot,
        steps=steps,
        outliers=outliers,
        gpu=None if gpu is None else _gpu_with_places(gpu, places),
    )


def _gpu_with_places(gpu: GpuSnapshot, places: Sequence[Sequence[int]]) -> GpuSnapshot:
    def new(thread: int, node: int) -> int:
        return places[thread][node] if thread >= 0 else node

    def at_site(row: Any) -> Any:
        return replace(
            row, node=new(row.thread, row.node), via_node=new(row.via_thread, row.via_node)
        )

    return replace(
        gpu,
        activity=tuple([at_site(row) for row in gpu.activity]),
        host=tuple([at_site(row) for row in gpu.host]),
        lines=tuple([replace(row, node=new(row.thread, row.node)) for row in gpu.lines]),
    )
