"""From calling-context trees to the flat function table with its callers.

The rules are cProfile's.  Cumulative time is counted at the outermost activation of a
function only, so that recursion does not count time twice; an edge (caller, callee) has
its own recursion level, and its cumulative time is counted at the outermost activation
of that pair.  A resume of a generator is an activation like a call.

What is not a function in the view at hand is *transparent*: its time belongs to the
function around it, and what it calls has that function as its caller.

Nothing recurses: a tree may be as deep as it has nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastprof.snapshot import NodeTable

#: Group number of a key that is transparent in the view at hand.
TRANSPARENT = -1


class Row:
    """Totals of one group; times in ns, raw ones as recorded."""

    __slots__ = (
        "calls",
        "cum_ns",
        "end",
        "primitive_calls",
        "primitive_resumes",
        "raw_cum_ns",
        "raw_self_ns",
        "resumes",
        "self_ns",
    )

    def __init__(self) -> None:
        self.calls = 0
        self.resumes = 0
        #: Those that were not inside another activation of the same group.
        self.primitive_calls = 0
        self.primitive_resumes = 0
        self.self_ns = 0
        self.cum_ns = 0
        self.raw_self_ns = 0
        self.raw_cum_ns = 0
        #: While a table is made: where in its order the last outermost activation ends.
        self.end = 0


class Flat:
    """Rows by group and edges by (caller group, callee group); grows by :func:`add_tree`."""

    __slots__ = ("edges", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.edges: dict[tuple[int, int], Row] = {}

    def add(self, other: Flat) -> None:
        """Add another table of the same groups."""
        for group, row in other.rows.items():
            _add(self.rows.setdefault(group, Row()), row)
        for pair, row in other.edges.items():
            _add(self.edges.setdefault(pair, Row()), row)


def merged(tables: Iterable[Flat]) -> Flat:
    """Return the sum of tables of the same groups; of a single one, that one itself."""
    first, *others = [*tables] or [Flat()]
    if not others:
        return first
    total = Flat()
    for table in (first, *others):
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


def subtree_sums(parent: Sequence[int], self_ns: Sequence[int]) -> list[int]:
    """Inclusive time of every node: the sum of exclusive times over its subtree."""
    sums = list(self_ns)
    for i in range(len(sums) - 1, 0, -1):
        sums[parent[i]] += sums[i]
    return sums


def child_links(parent: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return per node its first child and its next sibling; 0, the root, means "none"."""
    first_child = [0] * len(parent)
    sibling = [0] * len(parent)
    for i in range(len(parent) - 1, 0, -1):
        above = parent[i]
        sibling[i] = first_child[above]
        first_child[above] = i
    return first_child, sibling


def node_groups(nodes: NodeTable, group_of_key: Sequence[int]) -> list[int]:
    """Group of every node; the root is transparent."""
    groups = [group_of_key[k] for k in nodes.key]
    groups[0] = TRANSPARENT
    return groups


def flatten(nodes: NodeTable, groups: Sequence[int], corrected_ns: Sequence[int]) -> Flat:
    """Make one tree's table.

    Args:
        nodes: the tree.
        groups: per node, which row it counts to, or :data:`TRANSPARENT`.
        corrected_ns: per node, its corrected exclusive time.
    """
    table = Flat()
    rows_of, edges_of = table.rows, table.edges
    parent, node_calls, node_resumes, raw_ns = (
        nodes.parent, nodes.calls, nodes.resumes, nodes.self_ns
    )  # fmt: skip
    n = len(nodes)
    rows: list[Row | None] = [None] * n
    edges: list[Row | None] = [None] * n
    owner = [0] * n  # the node itself, or the nearest one above that is not transparent
    # A run has some 100,000 contexts: what is done for each of them is spelled out here.
    for i in range(1, n):
        at = above = owner[parent[i]]
        group = groups[i]
        if group >= 0:
            at = i
            row = rows_of.get(group)
            if row is None:
                row = rows_of[group] = Row()
            rows[i] = row
            calls, resumes = node_calls[i], node_resumes[i]
            row.calls += calls
            row.resumes += resumes
            if above:
                pair = (groups[above], group)
                edge = edges_of.get(pair)
                if edge is None:
                    edge = edges_of[pair] = Row()
                edges[i] = edge
                edge.calls += calls
                edge.resumes += resumes
        owner[i] = at
        owning = rows[at]
        if owning is not None:
            own, raw = corrected_ns[i], raw_ns[i]
            owning.self_ns += own
            owning.raw_self_ns += raw
            edge = edges[at]
            if edge is not None:
                edge.self_ns += own
                edge.raw_self_ns += raw
    _add_outermost(nodes, rows, edges, subtree_sums(parent, corrected_ns))
    return table


def _add_outermost(
    nodes: NodeTable,
    rows: list[Row | None],
    edges: list[Row | None],
    inclusive_ns: list[int],
) -> None:
    """Walk the tree, callers first, and count what only an outermost activation counts.

    In that order a subtree is a run of neighbours, so an activation is inside another one
    of its row as long as that one's run has not ended.
    """
    parent, calls, resumes = nodes.parent, nodes.calls, nodes.resumes
    raw_inclusive_ns = subtree_sums(parent, nodes.self_ns)
    order, sizes = _callers_first(parent)
    for place, i in enumerate(order):
        row = rows[i]
        if row is None:
            continue
        if place >= row.end:
            row.end = place + sizes[i]
            row.primitive_calls += calls[i]
            row.primitive_resumes += resumes[i]
            row.cum_ns += inclusive_ns[i]
            row.raw_cum_ns += raw_inclusive_ns[i]
        edge = edges[i]
        if edge is not None and place >= edge.end:
            edge.end = place + sizes[i]
            edge.primitive_calls += calls[i]
            edge.primitive_resumes += resumes[i]
            edge.cum_ns += inclusive_ns[i]
            edge.raw_cum_ns += raw_inclusive_ns[i]


def _callers_first(parent: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the nodes so that each is followed by its subtree, and the subtrees' sizes."""
    n = len(parent)
    sizes = subtree_sums(parent, [1] * n)
    order = [0] * n
    #: Per node the place after what of its subtree was placed already.
    free = [1] * n
    for i in range(1, n):
        above = parent[i]
        place = free[above]
        free[above] = place + sizes[i]
        free[i] = place + 1
        order[place] = i
    return order, sizes
