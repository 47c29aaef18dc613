"""The function table as a ``.stats`` file, for :mod:`pstats` and all its readers.

Labels and counts are cProfile's: a function is (file, line, ``co_name``), and a resume of a
generator is a call. cProfile's careless output breaks some readers, so this goes beyond the needs
of :mod:`pstats`:

* every caller has an entry, and caller values are tuples of four;
* functions with the same label are one row that adds them up, whereas cProfile keeps
  whichever comes last;
* names contain only characters that print, and no lone surrogates.

Constructors and sections are rows of the report only: cProfile does not see them, so here their
time belongs to their caller.
"""

from __future__ import annotations

import marshal
from operator import add
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from fastprof.names import printable_name
from fastprof.read.limits import Limits
from fastprof.read.pstats import Caller, Entry, Function
from fastprof.read.smaller import OTHER_FUNCTIONS
from fastprof.report.correct import correct
from fastprof.report.flat import TRANSPARENT, flatten, merged
from fastprof.report.model import Report
from fastprof.report.writers import require_tree
from fastprof.snapshot import Snapshot, ThreadTree

if TYPE_CHECKING:
    import pstats

_FUNCTIONS = ("python", "c")

#: What a reader accepts, and the values that it counts per function and per edge.
_LIMITS = Limits()
_VALUES, _EDGE_VALUES = 10, 9
_OTHERS: Function = ("<other functions>", 0, OTHER_FUNCTIONS)


def write(report: Report, stream: BinaryIO) -> None:
    """Write a report's functions; times are corrected if the report's are."""
    require_tree(report, "a .stats file")
    write_stats(stats_dict(report.snapshot, correct_times=report.overhead.corrected), stream)


class _Table:
    """An object that :class:`pstats.Stats` accepts as a profiler."""

    def __init__(self, stats: dict[Function, Entry]) -> None:
        self.stats = stats

    def create_stats(self) -> None:
        """Do nothing: there is nothing to stop."""


def as_pstats(stats: dict[Function, Entry], stream: TextIO) -> pstats.Stats:
    """Return a table of :func:`stats_dict`, for printing without directories."""
    import pstats

    table: Any = _Table(stats)
    return pstats.Stats(table, stream=stream).strip_dirs()


def write_stats(stats: dict[Function, Entry], stream: BinaryIO) -> None:
    """Write a table of :func:`stats_dict`.

    If fastprof would refuse to read it, the functions with least own time become one; its
    cumulative time is its own.
    """
    data = marshal.dumps(stats)
    while (used := _used(stats, data)) > 1:
        stats = _smaller(stats, int(len(stats) * 0.9 / used))
        data = marshal.dumps(stats)
    stream.write(data)


def _used(stats: dict[Function, Entry], data: bytes) -> float:
    """Return the largest part of a reader's limits that a file needs; 1: all of it."""
    edges = sum([len(entry[4]) for entry in stats.values()])
    values = _VALUES * len(stats) + _EDGE_VALUES * edges
    return max(values / _LIMITS.max_entries, len(data) / _LIMITS.max_bytes)


def _smaller(stats: dict[Function, Entry], most: int) -> dict[Function, Entry]:
    ranked = sorted(stats, key=lambda function: -stats[function][2])
    names = dict.fromkeys(ranked[most:], _OTHERS)
    made: dict[Function, Entry] = {}
    for function, (primitive, calls, own, cumulative, callers) in stats.items():
        name = names.get(function, function)
        if name is _OTHERS:
            cumulative = own
        known = made.get(name, (0, 0, 0.0, 0.0, {}))
        sums: Any = map(add, known[:4], (primitive, calls, own, cumulative))
        edges: dict[Function, Any] = known[4]
        for caller, times in callers.items():
            above, them = names.get(caller, caller), cast("tuple[float, ...]", times)
            edges[above] = tuple(map(add, edges.get(above, (0, 0, 0.0, 0.0)), them))
        made[name] = (*sums, edges)
    return made


def stats_dict(snapshot: Snapshot, *, correct_times: bool = True) -> dict[Function, Entry]:
    """Return the equivalent of ``cProfile.Profile.stats``, over all threads."""
    files = {file: printable_name(file) for file in {key.file for key in snapshot.keys}}
    labels = [(files[key.file], key.line, printable_name(key.name)) for key in snapshot.keys]
    first: dict[Function, int] = {}
    groups = [
        first.setdefault(label, i) if key.kind in _FUNCTIONS else TRANSPARENT
        for i, (key, label) in enumerate(zip(snapshot.keys, labels, strict=True))
    ]
    columns = correct(snapshot, enabled=correct_times).self_ns
    table = merged(
        flatten(tree.nodes, _entered(tree, groups), column)
        for tree, column in zip(snapshot.threads, columns, strict=True)
    )
    # There may be a million rows: no call for each of them.
    callers: dict[int, dict[Function, Caller]] = {group: {} for group in table.rows}
    for (caller, callee), r in table.edges.items():
        callers[callee][labels[caller]] = (
            r.calls + r.resumes, r.primitive_calls + r.primitive_resumes, r.self_ns / 1e9,
            r.cum_ns / 1e9,
        )  # fmt: skip
    return {
        labels[group]: (
            r.primitive_calls + r.primitive_resumes, r.calls + r.resumes, r.self_ns / 1e9,
            r.cum_ns / 1e9, callers[group],
        )
        for group, r in table.rows.items()
    }  # fmt: skip


def _entered(tree: ThreadTree, groups: list[int]) -> list[int]:
    """Return the group of each node.  A function without recorded calls is transparent.

    Readers divide by the number of calls, so a row must have a call.
    """
    nodes = tree.nodes
    out = [
        groups[key] if calls or resumes else TRANSPARENT
        for key, calls, resumes in zip(nodes.key, nodes.calls, nodes.resumes, strict=True)
    ]
    out[0] = TRANSPARENT
    return out
