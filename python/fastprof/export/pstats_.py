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
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from fastprof.names import printable_name
from fastprof.read.pstats import Caller, Entry, Function
from fastprof.report.correct import correct
from fastprof.report.flat import TRANSPARENT, flatten, merged
from fastprof.report.model import Report
from fastprof.report.writers import require_tree
from fastprof.snapshot import Snapshot, ThreadTree

if TYPE_CHECKING:
    import pstats

_FUNCTIONS = ("python", "c")


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
    """Write a table of :func:`stats_dict`."""
    stream.write(marshal.dumps(stats))


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
