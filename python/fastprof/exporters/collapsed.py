"""Collapsed stacks: one line per calling context, ``frame;frame;frame weight``.

What flame graph tools read.  Weights are exclusive nanoseconds, so they add up to the
recorded thread time exactly.  The first frame is the thread.  A ``;`` in a name is
written ``\\x3b``, as it would cut the frame in two.  Contexts deeper than
:data:`MAX_DEPTH` are added to the frame at that depth.
"""

from __future__ import annotations

from typing import TextIO

from fastprof.exporters.base import require_tree
from fastprof.exporters.depth import MAX_DEPTH, folded
from fastprof.exporters.frames import frame_label
from fastprof.names import printable_name
from fastprof.report.correct import correct
from fastprof.report.flat import child_links
from fastprof.report.model import Report
from fastprof.snapshot import ThreadTree


def write(report: Report, stream: TextIO) -> None:
    """Write every context that took time."""
    require_tree(report, "a collapsed-stack file")
    snapshot = report.view
    labels = [escaped(frame_label(key)) for key in snapshot.keys]
    columns = correct(snapshot, enabled=report.overhead.corrected).self_ns
    for tree, column in zip(snapshot.threads, columns, strict=True):
        _write_thread(tree, column, labels, stream)


def escaped(frame: str) -> str:
    return frame.replace(";", "\\x3b")


def _write_thread(
    tree: ThreadTree, column: tuple[int, ...], labels: list[str], stream: TextIO
) -> None:
    parent, key = tree.nodes.parent, tree.nodes.key
    depth, weight = folded(parent, column)
    first_child, sibling = child_links(parent)
    stack = [escaped(printable_name(tree.name or f"thread {tree.ident}", 500))]
    i = 0
    while True:
        if 0 < depth[i] <= MAX_DEPTH:
            del stack[depth[i] :]
            stack.append(labels[key[i]])
        if weight[i]:
            stream.write(f"{';'.join(stack)} {weight[i]}\n")
        if first_child[i]:
            i = first_child[i]
            continue
        while not sibling[i]:
            i = parent[i]
            if i <= 0:
                return
        i = sibling[i]
