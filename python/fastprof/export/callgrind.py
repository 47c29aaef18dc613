"""Callgrind's format: the call graph for KCachegrind, QCachegrind and gprof2dot.

Functions, sections and threads are that format's functions, so the costs of all of them add up to
the recorded thread time exactly.  Costs are nanoseconds: ``ns`` of wall time and, with a GPU layer,
``gpu_ns`` of the GPU work launched there.  A call's inclusive cost is the cost of its outermost
activation, as in the function table; the number of calls includes resumes of generators.

The call's own line is not recorded, so a call has the line of its caller's definition.  Readers
distinguish functions by their names alone; if two have the same name, file and line are added to
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TextIO, TypeVar

from fastprof._version import __version__
from fastprof.export.frames import MAX_LABEL, frame_name
from fastprof.names import printable_name
from fastprof.report.correct import correct
from fastprof.report.flat import TRANSPARENT, Flat, flatten
from fastprof.report.gpu import measured
from fastprof.report.gpu_tree import where
from fastprof.report.model import Report
from fastprof.report.writers import require_tree
from fastprof.snapshot import NodeTable, Snapshot, ThreadTree
from fastprof.snapshot.gpu import HOW_OTHER

#: The format's name for an unknown file.
_NO_FILE = "???"

_EVENTS = {"ns": "Wall time in ns", "gpu_ns": "GPU time in ns"}

#: The caller of GPU work without a known thread.
_NOBODY = ("(other threads)", "(unattributed)")

_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    file: str
    line: int


@dataclass(slots=True)
class _Cost:
    """One cost per event: of a function itself, or of its callees."""

    ns: list[int]
    calls: int = 0


@dataclass(slots=True)
class _Graph:
    events: int
    own: dict[int, _Cost] = field(default_factory=dict)
    edges: dict[tuple[int, int], _Cost] = field(default_factory=dict)

    def add(self, event: int, table: Flat) -> None:
        for group, row in table.rows.items():
            self.cost(group).ns[event] += row.self_ns
        for pair, edge in table.edges.items():
            cost = self.edges.setdefault(pair, _Cost([0] * self.events))
            cost.ns[event] += edge.cum_ns
            if event == 0:
                cost.calls += edge.calls + edge.resumes

    def cost(self, group: int) -> _Cost:
        return self.own.setdefault(group, _Cost([0] * self.events))


def write(report: Report, stream: TextIO) -> None:
    """Write the call graph of all threads together."""
    require_tree(report, "a callgrind file")
    snapshot = report.view
    functions = _functions(snapshot)
    graph = _graph(report, len(functions))
    if graph.events > 1:
        functions += [_Function(name, _NO_FILE, 0) for name in _NOBODY]
    _write(graph, _distinct(functions), stream)


def _functions(snapshot: Snapshot) -> list[_Function]:
    """Return the functions in the order of their numbers: the keys, then the threads."""
    out = []
    for key in snapshot.keys:
        python = key.kind == "python"
        file = printable_name(key.file, MAX_LABEL) if python else ""
        out.append(_Function(frame_name(key) or "(unnamed)", file or _NO_FILE, key.line))
    for tree in snapshot.threads:
        name = printable_name(tree.name or f"thread {tree.ident}", MAX_LABEL)
        out.append(_Function(f"({name})", _NO_FILE, 0))
    return out


def _graph(report: Report, functions: int) -> _Graph:
    snapshot = report.view
    columns: list[Sequence[Sequence[int]]] = [
        correct(snapshot, enabled=report.overhead.corrected).self_ns
    ]
    gpu = measured(snapshot)
    nobody = [0, 0]
    if gpu is not None:
        launched = [[0] * len(tree.nodes) for tree in snapshot.threads]
        for row in gpu.activity:
            site, _ = where(row)
            if site is None:
                nobody[row.how != HOW_OTHER] += row.sum_ns
            else:
                launched[site[0]][site[1]] += row.sum_ns
        columns.append(launched)
    graph = _Graph(len(columns))
    first = _first_keys(snapshot)
    for i, tree in enumerate(snapshot.threads):
        whole, groups = _below_itself(tree, first, len(snapshot.keys) + i)
        for event, column in enumerate(columns):
            graph.add(event, flatten(whole, groups, [0, *column[i]]))
    if gpu is not None:
        for i, ns in enumerate(nobody):
            if ns:
                graph.cost(functions + i).ns[1] += ns
    return graph


def _first_keys(snapshot: Snapshot) -> list[int]:
    """Return the number of each key in the graph: the first key with the same text."""
    first: dict[object, int] = {}
    return [first.setdefault(key, i) for i, key in enumerate(snapshot.keys)]


def _below_itself(
    tree: ThreadTree, first: Sequence[int], thread: int
) -> tuple[NodeTable, list[int]]:
    """Add a root above the tree's own, which makes that one an ordinary function."""
    nodes = tree.nodes
    whole = NodeTable(
        parent=(-1, *(above + 1 for above in nodes.parent)),
        key=(0, *nodes.key),
        calls=(0, *nodes.calls),
        resumes=(0, *nodes.resumes),
        self_ns=(0, *nodes.self_ns),
    )
    return whole, [TRANSPARENT, thread, *(first[key] for key in nodes.key[1:])]


def _distinct(functions: Sequence[_Function]) -> list[_Function]:
    """Return the functions with distinct names, unless they have the same text."""
    seen: dict[str, set[_Function]] = {}
    for function in functions:
        seen.setdefault(function.name, set()).add(function)
    return [
        f if len(seen[f.name]) == 1 else replace(f, name=f"{f.name} ({f.file}:{f.line})")
        for f in functions
    ]


def _write(graph: _Graph, functions: Sequence[_Function], stream: TextIO) -> None:
    names = ("ns", "gpu_ns")[: graph.events]
    stream.write(f"# callgrind format\nversion: 1\ncreator: fastprof {__version__}\n")
    stream.write("cmd: fastprof\npositions: line\n")
    for name in names:
        stream.write(f"event: {name} : {_EVENTS[name]}\n")
    stream.write(f"events: {' '.join(names)}\n")
    total = [sum(cost.ns[i] for cost in graph.own.values()) for i in range(graph.events)]
    stream.write(f"summary: {_numbers(total)}\n")
    called: dict[int, list[tuple[int, _Cost]]] = {}
    for (caller, callee), cost in graph.edges.items():
        called.setdefault(caller, []).append((callee, cost))
    names_of = _Names(functions)
    for group, own in graph.own.items():
        line = functions[group].line
        stream.write(f"\n{names_of.file('fl', group)}\n{names_of.function('fn', group)}\n")
        stream.write(f"{line} {_numbers(own.ns)}\n")
        for callee, cost in called.get(group, ()):
            stream.write(f"{names_of.file('cfi', callee)}\n{names_of.function('cfn', callee)}\n")
            stream.write(f"calls={cost.calls} {functions[callee].line}\n")
            stream.write(f"{line} {_numbers(cost.ns)}\n")
    stream.write(f"\ntotals: {_numbers(total)}\n")


def _numbers(values: Sequence[int]) -> str:
    return " ".join(map(str, values))


class _Names:
    """Writes a name in full at its first use, and then only its number."""

    def __init__(self, functions: Sequence[_Function]) -> None:
        self._functions = functions
        self._files: dict[str, int] = {}
        self._names: dict[tuple[str, str], int] = {}

    def file(self, position: str, group: int) -> str:
        file = self._functions[group].file
        return f"{position}={_compressed(self._files, file, file)}"

    def function(self, position: str, group: int) -> str:
        function = self._functions[group]
        key = (function.file, function.name)
        return f"{position}={_compressed(self._names, key, function.name)}"


def _compressed(known: dict[_K, int], key: _K, name: str) -> str:
    if key in known:
        return f"({known[key]})"
    known[key] = len(known) + 1
    return f"({known[key]}) {name}"
