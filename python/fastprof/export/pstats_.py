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
from collections.abc import Sequence
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from fastprof.fast import stats_file
from fastprof.names import MAX_NAME, printable_name
from fastprof.read.limits import Limits
from fastprof.read.pstats import Caller, Entry, Function
from fastprof.read.smaller import OTHER_FUNCTIONS
from fastprof.report.correct import correct
from fastprof.report.flat import TRANSPARENT, pair_sums_of
from fastprof.report.model import Report
from fastprof.report.run_phases import with_functions
from fastprof.report.tree import joined
from fastprof.report.writers import require_tree
from fastprof.snapshot import Key, NodeTable, Snapshot

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
    stream.write(stats_data(report.snapshot, correct_times=report.overhead.corrected))


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


def stats_data(snapshot: Snapshot, *, correct_times: bool = True) -> bytes:
    """Return the content of a ``.stats`` file.

    If fastprof would refuse to read it, the functions with least own time become one; its
    cumulative time is its own.
    """
    if snapshot.threads and stats_file is not None:
        labels, nodes, groups, self_ns = _tree(snapshot, correct_times)
        columns = nodes.parent, groups, nodes.calls, nodes.resumes, self_ns, self_ns
        found = stats_file(labels, *columns)
        if found is not None and _part(*found) <= 1:
            return found[0]
    stats = stats_dict(snapshot, correct_times=correct_times)
    data = marshal.dumps(stats)
    while (used := _used(stats, data)) > 1:
        stats = _smaller(stats, int(len(stats) * 0.9 / used))
        data = marshal.dumps(stats)
    return data


def _used(stats: dict[Function, Entry], data: bytes) -> float:
    return _part(data, len(stats), sum([len(entry[4]) for entry in stats.values()]))


def _part(data: bytes, functions: int, edges: int) -> float:
    """Return the largest part of a reader's limits that a file needs; 1: all of it."""
    values = _VALUES * functions + _EDGE_VALUES * edges
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
    if not snapshot.threads:
        return {}
    labels, nodes, groups, self_ns = _tree(snapshot, correct_times)
    s = pair_sums_of(nodes, groups, self_ns)
    # There may be a million pairs (caller, callee): no object and no call for each of them.
    calls, primitive = list(map(add, s.calls, s.resumes)), list(map(add, s.outer, s.outer_resumes))
    own, cumulative = [ns / 1e9 for ns in s.self_ns], [ns / 1e9 for ns in s.cum_ns]
    of_edges: Sequence[int] = primitive
    with_inner: Sequence[float] = cumulative
    if s.nested:
        of_edges = list(map(add, primitive, map(add, s.more, s.more_resumes)))
        with_inner = [ns / 1e9 for ns in map(add, s.cum_ns, s.more_cum_ns)]
    edges = list(zip(calls, of_edges, own, with_inner, strict=True))
    callers: dict[int, dict[Function, Caller]] = {}
    first: dict[int, int] = {}  # a function's first pair, to which its others are added
    for i, (caller, group) in enumerate(zip(s.caller, s.callee, strict=True)):
        row = first.setdefault(group, i)
        if row == i:
            callers[group] = {}
        else:
            for column in (primitive, calls, s.self_ns, s.cum_ns):
                column[row] += column[i]
            own[row], cumulative[row] = s.self_ns[row] / 1e9, s.cum_ns[row] / 1e9
        if caller >= 0:
            callers[group][labels[caller]] = edges[i]
    del first[TRANSPARENT]
    return {
        labels[group]: (primitive[i], calls[i], own[i], cumulative[i], callers[group])
        for group, i in first.items()
    }


def _labels(keys: Sequence[Key]) -> tuple[list[Function], list[int]]:
    """Return the label of each key, and its group: the first function with that label."""
    files = {file: printable_name(file) for file in {key.file for key in keys}}
    names = [key.name for key in keys]
    # Nearly always all of them are, and there may be a million.
    if not "".join(names).isprintable() or max(map(len, names), default=0) > MAX_NAME:
        names = list(map(printable_name, names))
    labels = [(files[key.file], key.line, name) for key, name in zip(keys, names, strict=True)]
    first: dict[Function, int] = {}
    return labels, [
        first.setdefault(label, i) if key.kind in _FUNCTIONS else TRANSPARENT
        for i, (key, label) in enumerate(zip(keys, labels, strict=True))
    ]


def _tree(
    snapshot: Snapshot, correct_times: bool
) -> tuple[list[Function], NodeTable, list[int], Sequence[int]]:
    """Return the label of each key, all threads as one tree, and per node its group and self time.

    A function without recorded calls is transparent: readers divide by the number of calls.
    """
    snapshot = with_functions(snapshot)
    labels, groups = _labels(snapshot.keys)
    nodes = joined(snapshot.threads)
    entered = [
        groups[number] if n or again else TRANSPARENT
        for number, n, again in zip(nodes.key, nodes.calls, nodes.resumes, strict=True)
    ]
    columns = correct(snapshot, enabled=correct_times).self_ns
    return labels, nodes, entered, tuple(chain.from_iterable(columns))
