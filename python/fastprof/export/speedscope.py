"""A speedscope file: an exact flame graph per thread.

The calling-context tree has sums but no moments, so its contexts are laid out side by side: each
begins at the end of the one before it, its own time first, then its callees. speedscope's "evented"
form needs one event pair per context for that.  Only its "left heavy" and "sandwich" views have a
meaning.  Contexts deeper than :data:`~fastprof.export.depth.MAX_DEPTH` are added to the frame at
that depth.
"""

from typing import Any, TextIO

from fastprof.export.depth import folded
from fastprof.export.frames import frame_name
from fastprof.export.gpu_stacks import gpu_stacks
from fastprof.names import printable_name
from fastprof.report.correct import correct
from fastprof.report.model import Report
from fastprof.report.tree import child_links, subtree_sums
from fastprof.report.writers import EXACT, compact_json, require_tree
from fastprof.snapshot import Key, ThreadTree

SCHEMA = "https://www.speedscope.app/file-format-schema.json"

#: JavaScript has no integers above 2**53; a longer profile gets a coarser unit.
UNITS = (("nanoseconds", 1), ("microseconds", 10**3), ("milliseconds", 10**6), ("seconds", 10**9))


def write(report: Report, stream: TextIO) -> None:
    """Write one profile per thread."""
    require_tree(report, "a speedscope file")
    snapshot = report.view
    columns = correct(snapshot, enabled=report.overhead.corrected).self_ns
    frames = [_frame(key) for key in snapshot.keys]
    # One more frame per thread: its root, with the thread's name.
    frames += [{"name": _thread_name(tree)} for tree in snapshot.threads]
    stream.write(compact_json(_head("fastprof", frames))[:-1] + ',"profiles":[')
    for i, (tree, column) in enumerate(zip(snapshot.threads, columns, strict=True)):
        stream.write("," if i else "")
        _write_thread(tree, column, len(snapshot.keys) + i, stream)
    stream.write("]}\n")


def write_gpu(report: Report, stream: TextIO) -> None:
    """Write the work on the GPU as samples of :mod:`fastprof.export.gpu_stacks`.

    A weight is a time on the GPU.  The order has no meaning, as above.
    """
    stacks = [(f, ns) for f, ns in gpu_stacks(report, "a speedscope file by GPU time") if ns]
    frames: dict[str, int] = {}
    samples = [[frames.setdefault(name, len(frames)) for name in stack] for stack, _ in stacks]
    unit, divisor = _unit_of(sum(ns for _, ns in stacks))
    weights = [ns // divisor for _, ns in stacks]
    profile = {
        "type": "sampled",
        "name": "GPU time by launching context",
        "unit": unit,
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
    head = _head("fastprof GPU time", [{"name": name} for name in frames])
    stream.write(compact_json({**head, "profiles": [profile]}) + "\n")


def _head(name: str, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "$schema": SCHEMA,
        "exporter": "fastprof",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
    }


def _unit_of(total_ns: int) -> tuple[str, int]:
    """Return the finest unit in which a viewer, which has no integers, has all times exactly."""
    return next(u for u in UNITS if total_ns // u[1] <= EXACT or u is UNITS[-1])


def _frame(key: Key) -> dict[str, Any]:
    frame: dict[str, Any] = {"name": frame_name(key)}
    if key.kind == "python":
        frame.update(file=printable_name(key.file), line=key.line)
    return frame


def _thread_name(tree: ThreadTree) -> str:
    return printable_name(tree.name or f"thread {tree.ident}") + (" (ended)" if tree.ended else "")


def _write_thread(
    tree: ThreadTree, column: tuple[int, ...], root_frame: int, stream: TextIO
) -> None:
    parent, key = tree.nodes.parent, tree.nodes.key
    _, weight = folded(parent, column)
    inclusive = subtree_sums(parent, weight)
    unit, divisor = _unit_of(inclusive[0])
    head = {
        "type": "evented",
        "name": _thread_name(tree),
        "unit": unit,
        "startValue": 0,
        "endValue": inclusive[0] // divisor,
    }
    stream.write(compact_json(head)[:-1] + ',"events":[')
    first_child, sibling = child_links(parent)
    now = 0
    i = 0
    comma = ""

    def event(kind: str) -> None:
        frame = key[i] if i else root_frame
        stream.write(f'{comma}{{"type":"{kind}","frame":{frame},"at":{now // divisor}}}')

    while True:
        if inclusive[i]:  # a context without time is invisible
            event("O")
            comma = ","
            now += weight[i]
            if first_child[i]:
                i = first_child[i]
                continue
            event("C")
        while not sibling[i]:
            i = parent[i]
            if i < 0:
                stream.write("]}")
                return
            event("C")
        i = sibling[i]
