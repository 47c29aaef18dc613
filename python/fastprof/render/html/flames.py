"""Flame graphs of a page: calling-context trees as columns, in drawing order.

A row is a context; ``up`` is the distance in rows to its parent's row (0: the root).  Siblings are
sorted by time, most first.  Contexts without time are invisible and left out; beyond the limit the
smallest children of each context become one row of frame 0, with their time.  Calls within
fastprof's code are one context.
"""

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from fastprof.export.gpu_stacks import gpu_stacks
from fastprof.render.html.functions import function_numbers, shown_name
from fastprof.render.html.run_phases import PhaseView
from fastprof.render.html.strings import Strings
from fastprof.report.correct import correct
from fastprof.report.gpu import measured
from fastprof.report.kernel_labels import short_kernels
from fastprof.report.model import Report
from fastprof.report.origin import is_own, is_users
from fastprof.report.tree import child_links, subtree_sums
from fastprof.snapshot import Key, NodeTable, ThreadTree

SMALL = "(smaller contexts)"


@dataclass(frozen=True, slots=True)
class Tree:
    """One graph before the cut: ``weight`` is each context's own, ``calls`` may be empty."""

    title: str
    kind: str
    parent: Sequence[int]
    frame: Sequence[int]
    weight: Sequence[int]
    calls: Sequence[int]


class Frames:
    """Names of contexts, as columns; frame 0 represents those too small to draw.

    A function of the function table needs no name here: row ``i`` of the table of the graph's phase
    is frame ``-1 - i``.
    """

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        # There may be 250,000, of which few are drawn: they are named when it is known which.
        self._numbers: dict[Key, int] = {}
        self.number(SMALL, "small")

    def number(self, name: str, kind: str) -> int:
        return self.of_key(Key(kind, "", 0, name, name))

    def of_key(self, key: Key) -> int:
        """Return the number of a key's frame."""
        return self._numbers.setdefault(key, len(self._numbers))

    def columns(self, graphs: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
        """Return ``name``, ``kind``, ``file``, ``line``, and ``users``: frames of the program.

        Frames that no graph draws are left out; this numbers those of ``graphs`` anew.
        """
        drawn = sorted({0}.union(*(graph["frame"] for graph in graphs)))
        new = {old: i for i, old in enumerate([old for old in drawn if old >= 0])}
        for graph in graphs:
            graph["frame"] = [new.get(of, of) for of in graph["frame"]]
            graph["title"] = graph["frame"][0]
        number = self._strings.number
        keys = [key for i, key in enumerate(self._numbers) if i in new]
        return {
            "name": [number(shown_name(key)) for key in keys],
            "kind": [number(key.kind) for key in keys],
            "file": [number(key.file) for key in keys],
            "line": [key.line for key in keys],
            "users": [i for i, key in enumerate(keys) if is_users(key)],
        }


def flame_columns(views: Sequence[PhaseView], strings: Strings) -> dict[str, Any] | None:
    """Return the frames and the graphs of phases; None if there are no contexts.

    ``phase`` of a graph is the number of its view.
    """
    frames = Frames(strings)
    graphs = []
    for phase, view in enumerate(views):
        if not view.report.has_tree:
            continue
        trees = [*_time_trees(view, frames, workers=not phase), *_gpu_trees(view.report, frames)]
        sums = [subtree_sums(tree.parent, tree.weight) for tree in trees]
        least = _least(sums, view.limits.contexts)
        graphs += [
            _graph(tree, inclusive, least) | {"phase": phase}
            for tree, inclusive in zip(trees, sums, strict=True)
            if inclusive[0]
        ]
    return {"frames": frames.columns(graphs), "graphs": graphs} if graphs else None


def _time_trees(view: PhaseView, frames: Frames, *, workers: bool) -> list[Tree]:
    """Return one tree per thread; ``workers``: those of worker processes, too.

    Their time belongs to no phase of the run.
    """
    report, snapshot = view.report, view.report.view
    functions = function_numbers(report.functions, snapshot.keys, view.limits)
    numbers = [
        frames.of_key(key) if function < 0 else -1 - function
        for key, function in zip(snapshot.keys, functions, strict=True)
    ]
    own = {number for number, key in zip(numbers, snapshot.keys, strict=True) if is_own(key)}
    is_merged = bool(own) or len(set(numbers)) < len(numbers)
    parts = [(snapshot, "time")]
    if workers:
        apart = replace(snapshot, threads=snapshot.worker_threads, sections=(), gpu=None)
        parts.append((apart, "workers"))
    trees = []
    for of, kind in parts:
        columns = correct(of, enabled=report.overhead.corrected).self_ns
        for thread, weight in zip(of.threads, columns, strict=True):
            title = _thread_name(thread)
            frame = [numbers[key] for key in thread.nodes.key]
            frame[0] = frames.number(title, "root")
            if is_merged or any(thread.nodes.phase):
                trees.append(_merged(title, kind, thread.nodes, frame, weight, own))
            else:
                trees.append(
                    Tree(title, kind, thread.nodes.parent, frame, weight, thread.nodes.calls)
                )
    return trees


def _merged(
    title: str,
    kind: str,
    nodes: NodeTable,
    frame: Sequence[int],
    weight: Sequence[int],
    own: Collection[int],
) -> Tree:
    """Return a tree in which contexts with the same frame and parent are one.

    Phases of the run have separate contexts, which become one; an ``own`` frame inside an own frame
    becomes part of that one.
    """
    parent, frames, weights, all_calls = [-1], [frame[0]], [weight[0]], [nodes.calls[0]]
    lowest = min(frame)
    width = max(frame) - lowest + 1
    known: dict[int, int] = {}  # a place * width + a frame's number, from 0 -> the context's place
    at = array("l", (0,)) * len(nodes)
    columns = zip(nodes.parent, frame, weight, nodes.calls, strict=True)
    for i, (above, of, ns, calls) in islice(enumerate(columns), 1, None):
        above = at[above]
        if of in own and frames[above] in own:
            at[i] = above
            weights[above] += ns
            continue
        place = at[i] = known.setdefault(above * width + of - lowest, len(frames))
        if place == len(frames):
            parent.append(above)
            frames.append(of)
            weights.append(0)
            all_calls.append(0)
        weights[place] += ns
        all_calls[place] += calls
    return Tree(title, kind, parent, frames, weights, all_calls)


def _thread_name(tree: ThreadTree) -> str:
    name = tree.name or f"thread {tree.ident}"
    return name + (" (ended)" if tree.ended and "ended" not in name else "")


def _gpu_trees(report: Report, frames: Frames) -> list[Tree]:
    """Return one tree per thread that launched work, by GPU time; kernels have short names."""
    gpu = measured(report.view)
    if gpu is None:
        return []
    names = short_kernels(kernel.name for kernel in gpu.kernels)
    found: dict[str, _Trie] = {}
    for labels, ns in gpu_stacks(report, "a flame graph by GPU time", names):
        found.setdefault(labels[0], _Trie(frames)).add(labels, ns)
    return [
        Tree(name, "gpu", trie.parent, trie.frame, trie.weight, []) for name, trie in found.items()
    ]


class _Trie:
    """Stacks combined into a tree."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._places: dict[tuple[int, str], int] = {}
        self.parent: list[int] = []
        self.frame: list[int] = []
        self.weight: list[int] = []

    def add(self, labels: Sequence[str], ns: int) -> None:
        place = -1
        for i, label in enumerate(labels):
            above, place = place, self._places.setdefault((place, label), len(self.parent))
            if place == len(self.parent):
                kind = "root" if i == 0 else "kernel" if i == len(labels) - 1 else "place"
                self.parent.append(above)
                self.frame.append(self._frames.number(label, kind))
                self.weight.append(0)
        self.weight[place] += ns


def _least(sums: Sequence[Sequence[int]], limit: int) -> int:
    """Return the inclusive weight below which contexts are dropped."""
    weights = [ns for column in sums for ns in column if ns > 0]
    if len(weights) <= limit:
        return 1
    # If one more does not fit, keep only contexts heavier than the first that does not fit.
    weights.sort(reverse=True)
    return weights[limit] + 1


def _graph(tree: Tree, inclusive: Sequence[int], least: int) -> dict[str, Any]:
    # A context weighs at least as much as any inside it, so the ancestors of a kept one are kept.
    first_child, sibling = child_links(tree.parent)
    up: list[int] = []
    frame: list[int] = []
    weight: list[int] = []
    calls: list[int] = []
    small = 0

    def add(above: int, of: int, ns: int, times: int) -> None:
        up.append(len(up) - above if above >= 0 else 0)
        frame.append(of)
        weight.append(ns)
        calls.append(times)

    todo = [(0, -1, 0, 0)]  # node (-1: the small ones), row above, their time and number
    while todo:
        node, above, ns, times = todo.pop()
        if node < 0:
            small += times
            add(above, 0, ns, times)
            continue
        here = len(up)
        add(above, tree.frame[node], tree.weight[node], tree.calls[node] if tree.calls else 0)
        inside = []
        left_out = left_out_ns = 0
        child = first_child[node]
        while child:
            if inclusive[child] >= least:
                inside.append((inclusive[child], child))
            elif inclusive[child]:
                left_out += 1
                left_out_ns += inclusive[child]
            child = sibling[child]
        if left_out:
            todo.append((-1, here, left_out_ns, left_out))
        inside.sort(key=lambda item: item[0])  # the last one is drawn first
        todo += [(child, here, 0, 0) for _, child in inside]
    columns = {"up": up, "frame": frame, "weight": weight, "calls": calls if tree.calls else None}
    return {"title": frame[0], "kind": tree.kind, "left_out": small, **columns}
