"""The program's own functions as a tree, with the time of libraries at who called them.

A function is the program's if its file is neither the standard library's nor an installed
package's.  Library functions are folded: their time belongs to the function of the program
that led to it, and the first of them with a public name stands for what it called.  Where one
of these has more than half of the function's time, such as a ``Trainer.train`` that runs all of the
program, what it calls stands instead, down to where the time branches.  What import statements
took is the part ``imports``, but for the program's own modules.
Recursion is folded into the outermost activation, a comprehension into its function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastprof.report.correct import correct
from fastprof.report.model import Report
from fastprof.report.origin import (
    begins_import,
    is_own,
    is_private,
    is_users,
    package_of,
    shown_name,
)
from fastprof.report.run_phases import IMPORTS, beyond_steps_ns
from fastprof.report.threads import training_thread
from fastprof.snapshot import Key, Snapshot

_FOLDED = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
#: Where ``eval`` and ``exec`` are named, a module is imported or run.
_PLUMBING = ("builtins.exec", "builtins.eval", "_call_with_frames_removed")

#: A part of more than this share of what a function does outside of other functions of the
#: program is taken apart.
_LARGE = 0.5
#: A function whose time is to this share one callee's only leads to it.
_CHAIN = 0.8


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
    below: dict[int, float] = field(default_factory=dict)  # of nodes of library functions


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
    entries, library, folded = _entries(snapshot, number, columns[number])
    whole = entries[0].total_ns
    beyond_ns = beyond_steps_ns(snapshot, report.phase, number)
    if report.phase == "steps" and report.steps.wall_ns:
        # The total that other tables take their shares of.
        whole = report.steps.wall_ns + beyond_ns
    shown = [i for i in range(1, len(entries)) if entries[i].total_ns >= least * whole > 0]
    kept = sorted(shown, key=lambda i: (-entries[i].total_ns, i))[:limit]
    rows = [_row(snapshot, entries[i], folded, whole) for i in _calling_order(entries, kept)]
    return UserTree(
        tuple(rows), len(shown) - len(kept), whole / 1e6, _hidden(library), beyond_ns / 1e6
    )


def _entries(
    snapshot: Snapshot, number: int, self_ns: Sequence[int]
) -> tuple[list[_Entry], list[Key], _Folded]:
    """Return the tree, callers first, and the library functions folded into it."""
    nodes, keys = snapshot.threads[number].nodes, snapshot.keys
    kinds = [_kind(key) for key in keys]
    entries = [_Entry(0, -1, -1)]
    numbers: dict[tuple[int, int], int] = {}
    user = [0] * len(nodes)  # per node: the entry that has its time
    # Per node: the node of the library function that stands for it, and whether that is settled.
    called = [0] * len(nodes)
    settled = [False] * len(nodes)
    folded: set[int] = set()
    for i in range(len(nodes)):
        above, key = nodes.parent[i], nodes.key[i]
        if i:
            user[i], called[i], settled[i] = user[above], called[above], settled[above]
        kind = kinds[key]
        if kind == "user":
            user[i], called[i], settled[i] = _enter(entries, numbers, user[i], key), 0, False
        elif kind == "library":
            if self_ns[i] or nodes.calls[i]:
                folded.add(key)
            if begins_import(keys[key].file, keys[key].name):
                called[i], settled[i] = i, True
            elif not settled[i]:
                private = is_private(keys[key])
                if not (private and called[i]):
                    called[i] = i
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
    return entries, [keys[k] for k in folded], _Folded(snapshot, number, self_ns)


class _Folded:
    """The library functions that were folded, for those who look into them."""

    def __init__(self, snapshot: Snapshot, number: int, self_ns: Sequence[int]) -> None:
        self._keys, self._nodes = snapshot.keys, snapshot.threads[number].nodes
        self._self_ns = self_ns
        self._total_ns: list[float] = []
        self._children: dict[int, list[int]] = {}

    def parts(self, entry: _Entry) -> dict[str, float]:
        """Return the time of what libraries did for a function of the program, by name."""
        parts: dict[str, float] = {}
        places: dict[str, list[int]] = {}  # of those that can be taken apart
        for node, ns in entry.below.items():
            name = self._name(node)
            parts[name] = parts.get(name, 0.0) + ns
            if not is_private(self._key(node)):
                places.setdefault(name, []).append(node)
        whole = entry.own_ns + sum(parts.values())
        while parts:
            largest = max(parts, key=lambda name: parts[name])
            if largest not in places or parts[largest] <= _LARGE * whole:
                break
            inside = self._inside(largest, places.pop(largest))
            for name, (ns, nodes) in inside.items():
                parts[name] = parts.get(name, 0.0) + ns
                parts[largest] -= ns
                if nodes:
                    places.setdefault(name, []).extend(nodes)
        return parts

    def _inside(self, top: str, nodes: list[int]) -> dict[str, tuple[float, list[int]]]:
        """Return the times and places of what functions call, where their time branches.

        One that leads to a single function is the function by which that one's library was
        entered; none are returned if that is ``top`` itself.
        """
        if not self._total_ns:
            self._look()
        enough = _CHAIN * self._sum(nodes)
        entered = name = top
        package = package_of(self._key(nodes[0]))
        leads = nodes
        while True:
            called = self._called(name, nodes)
            times = {n: self._sum(found) for n, found in called.items()}
            first = max(times, key=lambda n: times[n], default="")
            if self._sum(nodes) - sum(times.values()) >= _CHAIN * self._sum(nodes):
                return {} if entered == top else {entered: (self._sum(leads), [])}
            if times[first] < enough:
                return {n: (times[n], found) for n, found in called.items()}
            name, nodes = first, called[first]
            of = package_of(self._key(nodes[0]))
            if of not in ("", package):
                entered, leads, package = name, nodes, of

    def _called(self, name: str, nodes: list[int]) -> dict[str, list[int]]:
        """Return the public functions of libraries below others, but for those of their name.

        Functions in C are what their callers do.
        """
        found: dict[str, list[int]] = {}
        pending = list(nodes)
        while pending:
            for i in self._children.get(pending.pop(), ()):
                key = self._key(i)
                inner = _kind(key) == "inner" or key.kind == "c" or is_private(key)
                if inner or self._name(i) == name:
                    pending.append(i)
                else:
                    found.setdefault(self._name(i), []).append(i)
        return found

    def _look(self) -> None:
        """Find what each node calls that is not the program's, and its time with that.

        Imports are a part beside it.
        """
        apart = [_kind(k) == "user" or begins_import(k.file, k.name) for k in self._keys]
        self._total_ns = list(map(float, self._self_ns))
        for i in range(len(self._nodes) - 1, 0, -1):
            if not apart[self._nodes.key[i]]:
                above = self._nodes.parent[i]
                self._total_ns[above] += self._total_ns[i]
                self._children.setdefault(above, []).append(i)

    def _sum(self, nodes: Sequence[int]) -> float:
        return sum(self._total_ns[i] for i in nodes)

    def _key(self, node: int) -> Key:
        return self._keys[self._nodes.key[node]]

    def _name(self, node: int) -> str:
        key = self._key(node)
        return IMPORTS if begins_import(key.file, key.name) else shown_name(key)


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


def _row(snapshot: Snapshot, entry: _Entry, folded: _Folded, whole: float) -> UserRow:
    key = snapshot.keys[entry.key]
    below = sorted(folded.parts(entry).items(), key=lambda item: (-item[1], item[0]))
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
