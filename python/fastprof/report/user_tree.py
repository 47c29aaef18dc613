"""The program's own functions as a tree; the time of libraries counts to their callers.

Library functions are folded (:mod:`fastprof.report.program`): their time belongs to the program's
function that led to it, and the first of them with a public name stands for its callees.  If one of
these has more than half of the function's time, such as a ``Trainer.train`` that runs all of the
program, its callees replace it, down to the point where the time branches.  The part ``imports`` is
the time of import statements, except those of the program's own modules.
Recursion is folded into the outermost activation, a comprehension into its function.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add

from fastprof.report.correct import correct
from fastprof.report.model import Report
from fastprof.report.origin import is_private, own_keys, package_of, shown_name
from fastprof.report.plain_steps import function_scale
from fastprof.report.program import kinds_of, led_to, library_name
from fastprof.report.run_phases import beyond_steps_ns
from fastprof.report.tree import callers_first, subtree_sums
from fastprof.snapshot import Key, Snapshot

#: A part with more than this share of a function's time outside of the program's other functions is
#: divided.
_LARGE = 0.5
#: A function that spends this share of its time in one callee only leads to it.
_CHAIN = 0.8
#: With this share, its row says nothing that the callee's does not.
_PASSES = 0.95
#: Rows with a smaller share of the whole are left out.
_LEAST = 0.01


@dataclass(frozen=True, slots=True)
class UserRow:
    """One of the program's functions below the functions that led to it.

    ``depth`` is 0 for the outermost.  ``total_ms`` includes all callees; ``share`` is its share of
    the whole tree's time.  ``own_ms`` is the time in the function's code; ``below`` lists (library
    function, ms), most first: library time for it, not for the program's functions below it.
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
    """The rows with most time in calling order; ``left_out`` counts the others.

    ``total_ms`` is the base of the shares: measured steps, or all time of the training thread.
    ``hidden`` lists (package, library functions folded), most first.  ``beyond_ms`` is the time of
    measured steps that no completed step contains: the rows include it, so they cannot be divided
    by the number of steps.
    """

    rows: tuple[UserRow, ...]
    left_out: int
    total_ms: float
    hidden: tuple[tuple[str, int], ...]
    beyond_ms: float = 0.0


class _Entries:
    """The tree as columns, because a deep one has a million entries; entry 0 is its root.

    ``library_ns`` is an entry's time in libraries; ``rest_ns`` is that of the program's functions
    that have no entries.
    """

    def __init__(self) -> None:
        self.parent, self.key, self.depth = [0], [-1], [-1]
        self.own_ns, self.rest_ns, self.library_ns = (array("d", (0.0,)) for _ in range(3))
        self.total_ns = array("d")
        #: (node of a library function, entry, ns)
        self.places: Iterator[tuple[int, int, float]] = iter(())

    def add(self, parent: int, key: int, depth: int) -> None:
        """Append an entry without time."""
        self.parent.append(parent)
        self.key.append(key)
        self.depth.append(depth)
        self.own_ns.append(0.0)
        self.rest_ns.append(0.0)
        self.library_ns.append(0.0)

    def sum_up(self) -> None:
        """Set the times that include the callees, from all other times."""
        outside_ns = map(add, self.rest_ns, self.library_ns)
        total_ns = self.total_ns = array("d", map(add, self.own_ns, outside_ns))
        for entry in range(len(total_ns) - 1, 0, -1):
            total_ns[self.parent[entry]] += total_ns[entry]

    def below(self, kept: Sequence[int]) -> dict[int, dict[int, float]]:
        """Return the times in libraries of a few entries by node; to be called once."""
        below: dict[int, dict[int, float]] = {entry: {} for entry in kept}
        for node, entry, ns in self.places:
            if entry in below:
                below[entry][node] = ns
        return below


def user_tree(report: Report, limit: int, number: int) -> UserTree:
    """Return the program's functions that took most time in a thread.

    They cover the report's phase of the run.

    Args:
        limit: of rows.
        number: of the thread in the snapshot; -1: none.
    """
    snapshot = report.view
    if number < 0 or not report.has_tree:
        return UserTree((), 0, 0.0, ())
    column: Sequence[float] = correct(snapshot, enabled=report.overhead.corrected).self_ns[number]
    scale = function_scale(report)
    if report.overhead.corrected or scale != 1.0:
        # fastprof's own functions are a part of its cost.
        own = own_keys(snapshot.keys)
        column = [
            0.0 if key in own else ns * scale
            for key, ns in zip(snapshot.threads[number].nodes.key, column, strict=True)
        ]
    whole = float(sum(column))
    beyond_ns = beyond_steps_ns(snapshot, report.phase, number)
    if report.phase == "steps" and report.steps.wall_ns:
        # The base of other tables' shares.
        whole = round((report.shown_steps.mean_ms or 0.0) * 1e6 * report.steps.measured) + beyond_ns
    least_ns = _LEAST * whole
    entries, library, folded = _entries(snapshot, number, column, least_ns)
    shown = [i for i, ns in enumerate(entries.total_ns) if i and ns >= least_ns > 0]
    kept = _most(entries, shown, limit) if len(shown) > limit else shown
    below = entries.below(kept)
    rows = [
        _row(snapshot, entries, i, n, folded.parts(entries.own_ns[i], below[i]), whole)
        for i, n in _calling_order(entries, kept)
    ]
    return UserTree(
        tuple(rows), len(shown) - len(kept), whole / 1e6, _hidden(library), beyond_ns / 1e6
    )


def _entries(
    snapshot: Snapshot, number: int, self_ns: Sequence[float], least_ns: float
) -> "tuple[_Entries, list[Key], _Folded]":
    """Return the tree, callers first, and the library functions folded into it.

    A function with less than ``least_ns`` in all of its calls has no entry, nor has what it calls,
    unless that is a recursion: it belongs to the outermost activation.
    """
    nodes, keys = snapshot.threads[number].nodes, snapshot.keys
    kinds = kinds_of(keys)
    all_ns = [0.0] * len(keys)
    for key, ns in zip(nodes.key, subtree_sums(nodes.parent, self_ns), strict=True):
        all_ns[key] += ns
    has_entry = [ns >= least_ns for ns in all_ns]
    entries = _Entries()
    own_ns, rest_ns, library_ns = entries.own_ns, entries.rest_ns, entries.library_ns
    chain = _Chain(entries, len(keys))
    user = [0] * len(nodes)  # per node: the entry that gets its time
    small = [False] * len(nodes)  # per node: whether it is in a function without an entry
    below_ns = array("d", (0.0,)) * len(nodes)  # per node that stands for others: their time
    called = led_to(nodes.parent, nodes.key, keys, kinds)
    library: set[int] = set()
    order, ends = callers_first(nodes)
    parent, key_of, calls = nodes.parent, nodes.key, nodes.calls
    for place, i in enumerate(order):
        above, key, ns = parent[i], key_of[i], self_ns[i]
        kind = kinds[key]
        # The root has no caller.
        of, is_small = (user[above], small[above]) if i else (0, False)
        if kind == "user":
            entry = 0
            if has_entry[key]:
                entry = chain.active(of, key, place)
                if not entry and not is_small:
                    entry = chain.enter(of, key, place, ends[place])
            of, is_small = entry or of, not entry
        elif kind != "inner" and (ns or calls[i]):
            library.add(key)
        user[i], small[i] = of, is_small
        if is_small:
            rest_ns[of] += ns
        elif called[i]:
            below_ns[called[i]] += ns
            library_ns[of] += ns
        else:
            own_ns[of] += ns
    entries.sum_up()
    stand = (i for i, n in enumerate(called) if n == i and not small[i])
    entries.places = ((i, user[i], below_ns[i]) for i in stand)
    return entries, [keys[k] for k in library], _Folded(snapshot, number, self_ns, kinds)


class _Folded:
    """Looks into the library functions that were folded."""

    def __init__(
        self, snapshot: Snapshot, number: int, self_ns: Sequence[float], kinds: Sequence[str]
    ) -> None:
        self._keys, self._nodes = snapshot.keys, snapshot.threads[number].nodes
        self._self_ns, self._kinds = self_ns, kinds
        self._total_ns: list[float] = []
        self._children: dict[int, list[int]] = {}

    def parts(self, own_ns: float, below: Mapping[int, float]) -> dict[str, float]:
        """Return the time of libraries for one of the program's functions, by name.

        Args:
            own_ns: the time in the function's code.
            below: the time per node of a library function.
        """
        parts: dict[str, float] = {}
        places: dict[str, list[int]] = {}  # the parts that can be divided
        for node, ns in below.items():
            name = self._name(node)
            parts[name] = parts.get(name, 0.0) + ns
            if not is_private(self._key(node)):
                places.setdefault(name, []).append(node)
        whole = own_ns + sum(parts.values())
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
        """Return times and places of the callees, at the level at which their time branches.

        If a chain of single callees ends in one function, return the function by which the chain
        entered that one's library; return nothing if that is ``top`` itself.
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
        """Return the public library functions below others, except those with their name.

        Functions in C count as part of their callers.
        """
        found: dict[str, list[int]] = {}
        pending = list(nodes)
        while pending:
            for i in self._children.get(pending.pop(), ()):
                key, kind = self._key(i), self._kinds[self._nodes.key[i]]
                inner = kind == "inner" or key.kind == "c" or is_private(key)
                if inner or self._name(i) == name:
                    pending.append(i)
                else:
                    found.setdefault(self._name(i), []).append(i)
        return found

    def _look(self) -> None:
        """Find the callees of each node outside of the program, and its time including them.

        Imports are a separate part.
        """
        key, parent, kinds = self._nodes.key, self._nodes.parent, self._kinds
        self._total_ns = list(map(float, self._self_ns))
        for i in range(len(self._nodes) - 1, 0, -1):
            if kinds[key[i]] not in ("user", "import"):
                above = parent[i]
                self._total_ns[above] += self._total_ns[i]
                self._children.setdefault(above, []).append(i)

    def _sum(self, nodes: Sequence[int]) -> float:
        return sum(self._total_ns[i] for i in nodes)

    def _key(self, node: int) -> Key:
        return self._keys[self._nodes.key[node]]

    def _name(self, node: int) -> str:
        return library_name(self._key(node))


class _Chain:
    """Finds the entry of an activation, below the entries of its callers.

    Activations come callers first, each with the place at which what it called ends.  A recursive
    one shortens the chain of entries until then: a search along the chain for each activation would
    take the square of a deep tree's size.
    """

    def __init__(self, entries: _Entries, keys: int) -> None:
        self._entries = entries
        self._keys = keys
        #: By an entry's number times ``keys`` plus the key of its callee; that one's.
        self._numbers: dict[int, int] = {}
        #: The entries of the chain by depth, and the last one of each key; some are stale.
        self._at: list[int] = []
        self._last: dict[int, int] = {}
        #: What to restore at a place: (place, depth, its entry, key, its entry).
        self._undo: list[tuple[int, int, int, int, int]] = []

    def active(self, above: int, key: int, place: int) -> int:
        """Return the entry of a function's open activation, ``above`` or a caller; 0: none."""
        depths, at, last, undo = self._entries.depth, self._at, self._last, self._undo
        while undo and undo[-1][0] <= place:
            _, depth, entry, of, entry_of = undo.pop()
            at[depth] = entry
            last[of] = entry_of
        found = last.get(key, 0)
        is_open = depths[found] <= depths[above] and found and at[depths[found]] == found
        return found if is_open else 0

    def enter(self, above: int, key: int, place: int, end: int) -> int:
        """Return the entry of an outermost activation below the entry ``above`` (0: none)."""
        depths, at, last = self._entries.depth, self._at, self._last
        depth = depths[above] + 1
        found = self._numbers.setdefault(above * self._keys + key, len(depths))
        if found == len(depths):
            self._entries.add(above, key, depth)
        if end == place + 1:  # it called nothing
            return found
        if depth == len(at):
            at.append(0)
        self._undo.append((end, depth, at[depth], key, last.get(key, 0)))
        at[depth] = last[key] = found
        return found


def _most(entries: _Entries, shown: Sequence[int], limit: int) -> list[int]:
    """Return the entries that say most: those with most time outside of other shown ones.

    Those that only call another one say least.
    """
    total_ns, parent = entries.total_ns, entries.parent
    adds_ns = {i: total_ns[i] for i in shown}
    passes: set[int] = set()
    for i in shown:
        if above := parent[i]:
            adds_ns[above] -= total_ns[i]
            if total_ns[i] >= _PASSES * total_ns[above]:
                passes.add(above)
    for i in passes:
        adds_ns[i] = total_ns[i]
    kept = sorted(shown, key=lambda i: (i in passes, -adds_ns[i], -total_ns[i], i))[:limit]
    # Rows of one function differ by what led to them.
    times = Counter(entries.key[i] for i in kept)
    rows: dict[int, None] = {}
    for i in kept:
        if times[entries.key[i]] > 1:
            while parent[i] in passes and parent[i] not in kept:
                i = parent[i]
        rows[i] = None
    return list(rows)


def _calling_order(entries: _Entries, kept: Sequence[int]) -> list[tuple[int, int]]:
    """Return the kept entries and their depths, each followed by those that it led to."""
    below: dict[int, list[int]] = {}
    of = set(kept)
    for i in sorted(kept, key=lambda i: (-entries.total_ns[i], i)):
        above = entries.parent[i]
        while above and above not in of:
            above = entries.parent[above]
        below.setdefault(above, []).append(i)
    order: list[tuple[int, int]] = []
    pending = [(i, 0) for i in reversed(below.get(0, []))]
    while pending:
        i, depth = pending.pop()
        order.append((i, depth))
        pending += [(n, depth + 1) for n in reversed(below.get(i, []))]
    return order


def _row(
    snapshot: Snapshot,
    entries: _Entries,
    entry: int,
    depth: int,
    parts: Mapping[str, float],
    whole: float,
) -> UserRow:
    key = snapshot.keys[entries.key[entry]]
    below = sorted(parts.items(), key=lambda item: (-item[1], item[0]))
    return UserRow(
        depth=depth,
        name=shown_name(key),
        file=key.file,
        line=key.line,
        total_ms=entries.total_ns[entry] / 1e6,
        share=min(1.0, entries.total_ns[entry] / whole),
        own_ms=entries.own_ns[entry] / 1e6,
        below=tuple((name, ns / 1e6) for name, ns in below if ns > 0),
    )


def _hidden(library: Sequence[Key]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for key in library:
        package = package_of(key)
        counts[package] = counts.get(package, 0) + 1
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
