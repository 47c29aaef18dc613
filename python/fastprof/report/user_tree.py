"""The program's own functions as a tree, with the time of libraries at who called them.

A function is the program's if its file is neither the standard library's nor an installed
package's.  Library functions are folded: their time belongs to the function of the program
that led to it, and the first of them with a public name stands for what it called.
Recursion is folded into the outermost activation, a comprehension into its function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastprof.report.correct import correct
from fastprof.report.model import Report
from fastprof.report.origin import is_own, is_private, is_users, package_of, shown_name
from fastprof.report.run_phases import beyond_steps_ns
from fastprof.snapshot import Key, Snapshot

_FOLDED = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
#: Where ``eval`` and ``exec`` are named, a module is imported or run.
_PLUMBING = ("builtins.exec", "builtins.eval", "_call_with_frames_removed")


@dataclass(frozen=True, slots=True)
class UserRow:
    """One function of the program under the functions that led to it.

    ``depth`` is 0 for the outermost.  ``total_ms`` is with all that it called, ``share`` of
    the whole tree's time.  ``own_ms`` is in its own code; ``below`` are (library function,
    ms), most first: what libraries did for it, not for functions of the program under it.
    """

    depth: int
    name: str
    file: str
    line: int
    total_ms: float
    share: float
    own_ms: float
    below: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class UserTree:
    """The rows of most time in calling order; ``left_out`` are rows of less.

    ``total_ms`` is the time that the shares are of: measured steps, or all that the training
    thread did.  ``hidden`` are (package, library functions folded), most first.  ``beyond_ms``
    is of measured steps the time that is in no step that ended: the rows have it as well, and
    cannot be divided by the steps.
    """

    rows: tuple[UserRow, ...]
    left_out: int
    total_ms: float
    hidden: tuple[tuple[str, int], ...]
    beyond_ms: float = 0.0


@dataclass(slots=True)
class _Entry:
    parent: int
    key: int
    depth: int
    own_ns: float = 0.0
    total_ns: float = 0.0
    below: dict[str, float] = field(default_factory=dict)


def training_thread(snapshot: Snapshot) -> int:
    """Return the number of the thread whose steps were recorded; -1: there is no thread."""
    if snapshot.outliers is not None and 0 <= snapshot.outliers.thread < len(snapshot.threads):
        return snapshot.outliers.thread
    entered: dict[int, int] = {}
    for stats in snapshot.sections:
        entered[stats.thread] = entered.get(stats.thread, 0) + stats.outer_ns
    if entered:
        return max(entered, key=lambda thread: entered[thread])
    sizes = [sum(tree.nodes.calls) for tree in snapshot.threads]
    return max(range(len(sizes)), key=lambda i: sizes[i], default=-1)


def user_tree(report: Report, limit: int, least: float = 0.01) -> UserTree:
    """Return the program's functions of the training thread that took most time.

    They are those of the phase of the run that the report is on.

    Args:
        report: the report.
        limit: most rows.
        least: rows of a smaller share of the whole are left out.
    """
    snapshot = report.view
    number = training_thread(snapshot)
    if number < 0 or not report.has_tree:
        return UserTree((), 0, 0.0, ())
    columns = correct(snapshot, enabled=report.overhead.corrected).self_ns
    entries, library = _entries(snapshot, number, columns[number])
    whole = entries[0].total_ns
    beyond_ns = beyond_steps_ns(snapshot, report.phase, number)
    if report.phase == "steps" and report.steps.wall_ns:
        # The total that other tables take their shares of.
        whole = report.steps.wall_ns + beyond_ns
    shown = [i for i in range(1, len(entries)) if entries[i].total_ns >= least * whole > 0]
    kept = sorted(shown, key=lambda i: (-entries[i].total_ns, i))[:limit]
    rows = [_row(snapshot, entries[i], whole) for i in _calling_order(entries, kept)]
    return UserTree(
        tuple(rows), len(shown) - len(kept), whole / 1e6, _hidden(library), beyond_ns / 1e6
    )


def _entries(
    snapshot: Snapshot, number: int, self_ns: Sequence[int]
) -> tuple[list[_Entry], list[Key]]:
    """Return the tree, callers first, and the library functions folded into it."""
    nodes, keys = snapshot.threads[number].nodes, snapshot.keys
    kinds = [_kind(key) for key in keys]
    entries = [_Entry(0, -1, -1)]
    numbers: dict[tuple[int, int], int] = {}
    user = [0] * len(nodes)  # per node: the entry that has its time
    # Per node: the library function that stands for it, and whether that is settled.
    called: list[str] = [""] * len(nodes)
    settled = [False] * len(nodes)
    folded: set[int] = set()
    for i in range(len(nodes)):
        above, key = nodes.parent[i], nodes.key[i]
        if i:
            user[i], called[i], settled[i] = user[above], called[above], settled[above]
        kind = kinds[key]
        if kind == "user":
            user[i], called[i], settled[i] = _enter(entries, numbers, user[i], key), "", False
        elif kind == "library":
            if self_ns[i] or nodes.calls[i]:
                folded.add(key)
            if not settled[i]:
                private = is_private(keys[key])
                if not (private and called[i]):
                    called[i] = shown_name(keys[key])
                settled[i] = not private
        entry = entries[user[i]]
        if called[i]:
            entry.below[called[i]] = entry.below.get(called[i], 0.0) + self_ns[i]
        else:
            entry.own_ns += self_ns[i]
    for entry in reversed(entries):
        entry.total_ns += entry.own_ns + sum(entry.below.values())
        if entry is not entries[0]:
            entries[entry.parent].total_ns += entry.total_ns
    return entries, [keys[k] for k in folded]


def _kind(key: Key) -> str:
    """``user``, ``library``, or ``inner``: it belongs to what is around it."""
    if is_users(key):
        return "inner" if key.name in _FOLDED else "user"
    if key.kind in ("root", "section", "truncated") or is_own(key):
        return "inner"
    return "inner" if (key.qualname or key.name) in _PLUMBING else "library"


def _enter(entries: list[_Entry], numbers: dict[tuple[int, int], int], above: int, key: int) -> int:
    outer = above
    while outer:
        if entries[outer].key == key:
            return outer
        outer = entries[outer].parent
    found = numbers.get((above, key))
    if found is None:
        found = numbers[above, key] = len(entries)
        entries.append(_Entry(above, key, entries[above].depth + 1))
    return found


def _calling_order(entries: list[_Entry], kept: Sequence[int]) -> list[int]:
    """Return the kept entries so that each is followed by those it led to, most time first."""
    below: dict[int, list[int]] = {}
    for i in kept:  # what led to it took at least as long, and is kept as well
        below.setdefault(entries[i].parent, []).append(i)
    order: list[int] = []
    pending = list(reversed(below.get(0, [])))
    while pending:
        i = pending.pop()
        order.append(i)
        pending += reversed(below.get(i, []))
    return order


def _row(snapshot: Snapshot, entry: _Entry, whole: float) -> UserRow:
    key = snapshot.keys[entry.key]
    below = sorted(entry.below.items(), key=lambda item: (-item[1], item[0]))
    return UserRow(
        depth=entry.depth,
        name=shown_name(key),
        file=key.file,
        line=key.line,
        total_ms=entry.total_ns / 1e6,
        share=min(1.0, entry.total_ns / whole),
        own_ms=entry.own_ns / 1e6,
        below=tuple((name, ns / 1e6) for name, ns in below if ns > 0),
    )


def _hidden(library: Sequence[Key]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for key in library:
        package = package_of(key)
        counts[package] = counts.get(package, 0) + 1
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
