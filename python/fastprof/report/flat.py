"""From calling-context trees to the flat function table with its callers.

The rules are cProfile's.  Cumulative time is counted at the outermost activation of a
function only, so that recursion does not count time twice; an edge (caller, callee) has
its own recursion level, and its cumulative time is counted at the outermost activation
of that pair.  A resume of a generator is an activation like a call.

A key that is not a function in the current view is *transparent*: its time belongs to the enclosing
function, which is also the caller of its callees.

Nothing here recurses: a tree may be as deep as its number of nodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice

from fastprof.fast import pair_sums
from fastprof.report.tree import callers_first, subtree_sums
from fastprof.snapshot import NodeTable

#: Group number of a key that is transparent in the current view.
TRANSPARENT = -1


@dataclass(slots=True)
class Row:
    """Totals of one group; times in ns, raw ones as recorded."""

    calls: int = 0
    resumes: int = 0
    #: Calls not inside another activation of the same group.
    primitive_calls: int = 0
    primitive_resumes: int = 0
    self_ns: int = 0
    cum_ns: int = 0
    raw_self_ns: int = 0
    raw_cum_ns: int = 0


@dataclass(slots=True)
class Flat:
    """Rows by group and edges by (caller group, callee group); grows by :func:`add_tree`."""

    rows: dict[int, Row] = field(default_factory=dict)
    edges: dict[tuple[int, int], Row] = field(default_factory=dict)

    def add(self, other: "Flat") -> None:
        """Add another table of the same groups."""
        for group, row in other.rows.items():
            if group not in self.rows:
                self.rows[group] = Row()
            _add(self.rows[group], row)
        for pair, row in other.edges.items():
            if pair not in self.edges:
                self.edges[pair] = Row()
            _add(self.edges[pair], row)


def merged(tables: Iterable[Flat]) -> Flat:
    """Return the sum of tables of the same groups; a single table is returned itself."""
    total = first = Flat()
    for i, table in enumerate(tables):
        if not i:
            total = first = table
            continue
        if total is first:
            total = Flat()
            total.add(first)
        total.add(table)
    return total


def _add(into: Row, row: Row) -> None:
    into.calls += row.calls
    into.resumes += row.resumes
    into.primitive_calls += row.primitive_calls
    into.primitive_resumes += row.primitive_resumes
    into.self_ns += row.self_ns
    into.cum_ns += row.cum_ns
    into.raw_self_ns += row.raw_self_ns
    into.raw_cum_ns += row.raw_cum_ns


def node_groups(nodes: NodeTable, group_of_key: Sequence[int]) -> list[int]:
    """Return the group of every node; the root is transparent."""
    groups = [group_of_key[k] for k in nodes.key]
    groups[0] = TRANSPARENT
    return groups


def flatten(nodes: NodeTable, groups: Sequence[int], corrected_ns: Sequence[int]) -> Flat:
    """Return the table of one tree.  A function with one caller and its edge may be the same row.

    Args:
        groups: per node, its row's number, or :data:`TRANSPARENT`.
        corrected_ns: per node, its corrected exclusive time.
    """
    return _table(pair_sums_of(nodes, groups, corrected_ns))


def pair_sums_of(
    nodes: NodeTable, groups: Sequence[int], corrected_ns: Sequence[int]
) -> "PairSums":
    """Return the sums of one tree per pair of functions, as columns; see :func:`flatten`."""
    columns = None
    if pair_sums is not None:
        columns = pair_sums(
            nodes.parent, groups, nodes.calls, nodes.resumes, corrected_ns, nodes.self_ns
        )
    # Where they are other numbers than the usual ones, Python knows them, too.
    return _pair_sums(nodes, groups, corrected_ns) if columns is None else PairSums(*columns)


def _pair_sums(nodes: NodeTable, groups: Sequence[int], corrected_ns: Sequence[int]) -> "PairSums":
    """Return the sums of one tree; the extension's function does the same."""
    # A run has some 100,000 contexts, so the loop does little for each of them, and the rest only
    # for each pair (caller, callee), of which there are few: rows are sums of pairs.
    width = max(groups) + 1
    numbers: dict[int, int] = {}  # (caller + 1) * width + callee -> the pair's number, from 1
    sums = PairSums([TRANSPARENT], [TRANSPARENT], [0], [0], [0], [0])
    calls_of, resumes_of, self_of, raw_of = sums.calls, sums.resumes, sums.self_ns, sums.raw_ns
    base = [0]  # per node: the first part of the above for its callees
    number_of = [0]  # per node: the pair that gets its time
    entered = [0]  # per node: the pair of which it is an activation
    columns = zip(
        nodes.parent, groups, nodes.calls, nodes.resumes, corrected_ns, nodes.self_ns, strict=True
    )
    for above, group, calls, resumes, own, raw in islice(columns, 1, None):
        if group < 0:
            number = number_of[above]
            base.append(base[above])
            entered.append(0)
            self_of[number] += own
            raw_of[number] += raw
        else:
            pair = base[above] + group
            number = numbers.get(pair, 0)
            if number:
                calls_of[number] += calls
                resumes_of[number] += resumes
                self_of[number] += own
                raw_of[number] += raw
            else:
                number = numbers[pair] = len(calls_of)
                calls_of.append(calls)
                resumes_of.append(resumes)
                self_of.append(own)
                raw_of.append(raw)
            base.append((group + 1) * width)
            entered.append(number)
        number_of.append(number)
    del base, number_of
    sums.caller += [pair // width - 1 for pair in numbers]
    sums.callee += [pair % width for pair in numbers]
    _add_outermost(nodes, entered, corrected_ns, sums)
    return sums


def flatten_few(nodes: NodeTable, groups: Sequence[int], corrected_ns: Sequence[int]) -> Flat:
    """Return the result of :func:`flatten`; faster if nearly all nodes are transparent."""
    at = [0]  # per node: its number among the counted ones, or its nearest counted ancestor's
    few = [0]
    parent, own_ns, raw_ns = [-1], [corrected_ns[0]], [nodes.self_ns[0]]
    columns = zip(nodes.parent, groups, corrected_ns, nodes.self_ns, strict=True)
    for i, (above, group, own, raw) in islice(enumerate(columns), 1, None):
        if group < 0:
            place = at[above]
            own_ns[place] += own
            raw_ns[place] += raw
        else:
            place = len(few)
            few.append(i)
            parent.append(at[above])
            own_ns.append(own)
            raw_ns.append(raw)
        at.append(place)
    columns_of_few = (
        [column[i] for i in few] for column in (nodes.key, nodes.calls, nodes.resumes)
    )
    tree = NodeTable(*map(tuple, (parent, *columns_of_few, raw_ns)))
    return flatten(tree, [groups[i] for i in few], own_ns)


@dataclass(slots=True)
class PairSums:
    """Totals as columns, by the number of a pair; number 0 is time outside of functions.

    ``outer`` to ``raw_cum_ns`` are of activations that are outermost of their row, ``more`` to
    ``more_raw_cum_ns`` of others that are outermost of their edge: ``nested``.  If there is none,
    these columns are empty.
    """

    caller: list[int]
    callee: list[int]
    calls: list[int]
    resumes: list[int]
    self_ns: list[int]
    raw_ns: list[int]
    outer: list[int] = field(default_factory=list)
    outer_resumes: list[int] = field(default_factory=list)
    cum_ns: list[int] = field(default_factory=list)
    raw_cum_ns: list[int] = field(default_factory=list)
    more: list[int] = field(default_factory=list)
    more_resumes: list[int] = field(default_factory=list)
    more_cum_ns: list[int] = field(default_factory=list)
    more_raw_cum_ns: list[int] = field(default_factory=list)
    nested: list[int] = field(default_factory=list)


def _table(s: PairSums) -> Flat:
    """Return the rows and the edges of all pairs."""
    columns = s.calls, s.resumes, s.outer, s.outer_resumes, s.self_ns, s.cum_ns, s.raw_ns
    made = list(map(Row, *columns, s.raw_cum_ns))
    of_edges = list(made)
    for i in compress(range(len(made)), s.nested):
        edge = of_edges[i] = replace(made[i])
        edge.primitive_calls += s.more[i]
        edge.primitive_resumes += s.more_resumes[i]
        edge.cum_ns += s.more_cum_ns[i]
        edge.raw_cum_ns += s.more_raw_cum_ns[i]
    pairs = islice(zip(s.caller, s.callee, of_edges, strict=True), 1, None)
    # A call from outside of all functions has no caller.
    edges = {(caller, callee): edge for caller, callee, edge in pairs if caller >= 0}
    rows: dict[int, Row] = {}
    summed: set[int] = set()
    for function, row in islice(zip(s.callee, made, strict=True), 1, None):
        known = rows.setdefault(function, row)
        if known is not row:
            if function not in summed:
                summed.add(function)
                known = rows[function] = replace(known)
            _add(known, row)
    return Flat(rows, edges)


def _add_outermost(
    nodes: NodeTable, entered: Sequence[int], corrected_ns: Sequence[int], sums: PairSums
) -> None:
    """Walk the tree, callers first, and count the values of outermost activations.

    In that order a subtree is a contiguous run, so an activation is inside another one of its row
    until that one's run ends.  An activation that is outermost of its row is outermost of its edge,
    too.
    """
    order, ends = callers_first(nodes)
    callee = sums.callee
    inclusive_ns = raw_inclusive_ns = subtree_sums(nodes.parent, nodes.self_ns)
    if corrected_ns is not nodes.self_ns:
        inclusive_ns = subtree_sums(nodes.parent, corrected_ns)
    outer, outer_resumes, cum_ns, raw_cum_ns, more, more_resumes, more_cum_ns, more_raw_cum_ns = (
        [0] * len(callee) for _ in range(8)
    )
    nested = [0] * len(callee)
    row_ends = [0] * (max(callee) + 1)
    edge_ends = [0] * len(callee)
    for place, (i, end) in enumerate(zip(order, ends, strict=True)):
        number = entered[i]
        if not number:
            continue
        function = callee[number]
        if place >= row_ends[function]:
            row_ends[function] = edge_ends[number] = end
            outer[number] += nodes.calls[i]
            outer_resumes[number] += nodes.resumes[i]
            cum_ns[number] += inclusive_ns[i]
            raw_cum_ns[number] += raw_inclusive_ns[i]
        elif place >= edge_ends[number]:
            edge_ends[number] = end
            nested[number] = 1
            more[number] += nodes.calls[i]
            more_resumes[number] += nodes.resumes[i]
            more_cum_ns[number] += inclusive_ns[i]
            more_raw_cum_ns[number] += raw_inclusive_ns[i]
    sums.outer, sums.outer_resumes, sums.cum_ns, sums.raw_cum_ns = (
        outer, outer_resumes, cum_ns, raw_cum_ns,
    )  # fmt: skip
    if any(nested):
        sums.more, sums.more_resumes, sums.more_cum_ns, sums.more_raw_cum_ns = (
            more, more_resumes, more_cum_ns, more_raw_cum_ns,
        )  # fmt: skip
        sums.nested = nested
