"""The flat table: recursion, transparency, depth."""

from __future__ import annotations

import pytest
from fastprof import fast
from fastprof.report import flat
from fastprof.report.flat import (
    TRANSPARENT,
    Flat,
    PairSums,
    Row,
    flatten,
    flatten_few,
    merged,
    node_groups,
)
from fastprof.report.functions import section_table
from fastprof.report.tree import child_links, subtree_sums
from fastprof.snapshot import NodeTable, Snapshot, ThreadTree
from hypothesis import given
from hypothesis import strategies as st
from unit.snapshots import MS, ROOT, TRUNCATED, Node, c, py, section, tree


def table_of(snapshot):
    nodes = snapshot.threads[0].nodes
    kinds = ("python", "c")
    groups = [i if k.kind in kinds else TRANSPARENT for i, k in enumerate(snapshot.keys)]
    table = flatten(nodes, node_groups(nodes, groups), nodes.self_ns)
    names = [k.name for k in snapshot.keys]
    rows = {names[g]: row for g, row in table.rows.items()}
    edges = {(names[a], names[b]): row for (a, b), row in table.edges.items()}
    return rows, edges


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 10**6)), max_size=50))
def test_subtree_sums_are_the_sums_over_all_paths_below(choices):
    numpy = pytest.importorskip("numpy")
    parent = [-1] + [int(where * i) for i, (where, _) in enumerate(choices)]
    own = [7] + [ns for _, ns in choices]
    reach = numpy.eye(len(parent), dtype=object)
    for i in range(len(parent) - 1, 0, -1):
        reach[parent[i]] += reach[i]
    assert subtree_sums(parent, own) == list(reach @ numpy.array(own, dtype=object))


def test_child_links_keep_the_order_of_rows():
    first, sibling = map(list, child_links([-1, 0, 1, 0, 1]))
    assert first == [1, 2, 0, 0, 0]
    assert sibling == [0, 3, 4, 0, 0]


def test_a_section_and_a_truncated_node_are_transparent():
    inside = Node(py("g", 2), 5, 2 * MS)
    hidden = Node(TRUNCATED, 0, 0, [Node(py("h", 3), 7, 1 * MS)])
    rows, edges = table_of(
        tree(Node(py("f"), 1, 1 * MS, [Node(section("forward"), 1, 4 * MS, [inside, hidden])]))
    )
    assert rows["f"].self_ns == 5 * MS
    assert rows["f"].cum_ns == 8 * MS
    assert {pair: row.calls for pair, row in edges.items()} == {("f", "g"): 5, ("f", "h"): 7}


def test_what_is_called_from_no_function_has_no_caller():
    rows, edges = table_of(tree(Node(section("data"), 1, 3, [Node(py("f"), 1, 4)]), root_ns=5))
    assert (rows["f"].self_ns, rows["f"].cum_ns) == (4, 4)
    assert edges == {}


def test_mutual_recursion_counts_cumulative_time_once():
    inner = Node(py("a"), 1, 1, [Node(py("b"), 1, 1)])
    rows, edges = table_of(tree(Node(py("a"), 1, 1, [Node(py("b"), 1, 1, [inner])])))
    assert (rows["a"].calls, rows["a"].primitive_calls, rows["a"].cum_ns) == (2, 1, 4)
    assert (rows["b"].calls, rows["b"].primitive_calls, rows["b"].cum_ns) == (2, 1, 3)
    edge = edges[("a", "b")]
    assert (edge.calls, edge.primitive_calls, edge.cum_ns, edge.self_ns) == (2, 1, 3, 2)
    assert edges[("b", "a")].cum_ns == 2


def test_f29_a_tree_as_deep_as_it_has_nodes_needs_no_recursion():
    depth = 100_000
    nodes = NodeTable(
        tuple(range(-1, depth)), (0, *[1 + i % 2 for i in range(depth)]), (1,) * (depth + 1),
        (0,) * (depth + 1), (10,) * (depth + 1),
    )  # fmt: skip
    snapshot = Snapshot(
        {}, depth * 10, (ROOT, py("a"), c("b")), (ThreadTree(1, "main", False, nodes),)
    )
    rows, edges = table_of(snapshot)
    half = depth // 2
    assert (rows["a"].calls, rows["a"].primitive_calls) == (half, 1)
    assert rows["a"].cum_ns == depth * 10
    assert sum(row.self_ns for row in rows.values()) == depth * 10
    assert edges[("a", "<built-in method builtins.b>")].cum_ns == (depth - 1) * 10


def test_the_table_of_a_section_adds_up_to_the_section():
    work = Node(py("work", 2), 4, 6, [Node(section("inner"), 4, 2, [Node(c("len"), 8, 1)])])
    again = Node(section("forward"), 1, 3, [Node(c("len"), 1, 5)])
    snapshot = tree(
        Node(py("train"), 1, 100, [Node(section("forward"), 2, 10, [work, again])]),
        Node(py("work", 2), 9, 900),
    )
    table = section_table(snapshot, [snapshot.threads[0].nodes.self_ns], "forward")
    rows = {snapshot.keys[g].name: row for g, row in table.rows.items()}
    assert set(rows) == {"forward", "work", "<built-in method builtins.len>"}
    assert (rows["work"].calls, rows["work"].self_ns, rows["work"].cum_ns) == (4, 8, 9)
    # The nested entry of the section is part of it, like any nested section.
    assert (rows["forward"].calls, rows["forward"].self_ns) == (2, 13)
    assert rows["forward"].cum_ns == sum(row.self_ns for row in rows.values()) == 27


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(-1, 3), st.integers(0, 9)), max_size=30))
def test_only_outermost_activations_count_as_such_in_any_tree(choices):
    parent = [-1] + [int(where * i) for i, (where, _, _) in enumerate(choices)]
    groups = [TRANSPARENT] + [group for _, group, _ in choices]
    ns = [0] + [own for _, _, own in choices]
    n = len(parent)
    zeros = [0] * n
    nodes = NodeTable(*map(tuple, (parent, zeros, [1] * n, zeros, ns)))
    own = [0] * n
    for i in range(1, n):
        own[i] = i if groups[i] >= 0 else own[parent[i]]
    expected: dict[int, tuple[int, int]] = {}
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    sums = subtree_sums(parent, ns)
    for i in range(1, n):
        if groups[i] < 0:
            continue
        path = []
        above = own[parent[i]]
        pair = (groups[above], groups[i]) if above else None
        while above:
            path.append((groups[own[parent[above]]] if own[parent[above]] else None, groups[above]))
            above = own[parent[above]]
        if groups[i] not in [callee for _, callee in path]:
            calls, total = expected.get(groups[i], (0, 0))
            expected[groups[i]] = (calls + 1, total + sums[i])
        if pair is not None and pair not in path:
            calls, total = pairs.get(pair, (0, 0))
            pairs[pair] = (calls + 1, total + sums[i])
    for table in (flatten(nodes, groups, ns), flatten_few(nodes, groups, ns)):
        assert {g: (r.primitive_calls, r.cum_ns) for g, r in table.rows.items()} == expected
        assert {g: (r.primitive_calls, r.cum_ns) for g, r in table.edges.items()} == pairs


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(-3, 3), st.integers(0, 9)), max_size=30))
def test_the_table_of_few_is_that_of_all(choices):
    parent = (-1, *[int(where * i) for i, (where, _, _) in enumerate(choices)])
    groups = [TRANSPARENT, *[max(TRANSPARENT, group) for _, group, _ in choices]]
    ns = (3, *[own for _, _, own in choices])
    n = len(parent)
    nodes = NodeTable(parent, (0,) * n, tuple(range(n)), tuple(range(0, 2 * n, 2)), ns)
    raw = NodeTable(
        *[*[getattr(nodes, f) for f in ("parent", "key", "calls", "resumes")], (5,) * n]
    )

    def values(rows):
        return {g: [getattr(row, name) for name in Row.__slots__] for g, row in rows.items()}

    few, every = flatten_few(raw, groups, ns), flatten(raw, groups, ns)
    assert values(few.rows) == values(every.rows)
    assert values(few.edges) == values(every.edges)


def test_tables_of_threads_add_up_and_are_left_as_they_are():
    nodes = NodeTable((-1, 0, 1), (0, 0, 0), (0, 2, 3), (0, 0, 0), (0, 5, 7))
    tables = [flatten(nodes, [TRANSPARENT, 0, 1], nodes.self_ns) for _ in range(3)]
    total = merged(tables)
    assert (total.rows[0].calls, total.rows[0].cum_ns, total.edges[0, 1].calls) == (6, 36, 9)
    assert [table.rows[0].calls for table in tables] == [2, 2, 2]
    assert merged(tables[:1]) is tables[0]
    assert merged([]).rows == Flat().rows == {}


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(-1, 3), *[st.integers(0, 9)] * 4), max_size=40)
)
def test_the_extension_sums_any_tree_as_python_does(choices):
    pair_sums = fast.pair_sums or pytest.skip("there is no extension")
    where, groups, *columns = zip((0, TRANSPARENT, 1, 0, 5, 5), *choices, strict=True)
    parent = (-1, *[int(at * i) for i, at in enumerate(where[1:])])
    calls, resumes, own, raw = columns
    nodes = NodeTable(parent, groups, calls, resumes, raw)
    there = PairSums(*pair_sums(parent, groups, calls, resumes, own, raw))
    here = flat._pair_sums(nodes, groups, own)
    assert there == here


def test_equal_sums_of_the_extension_are_one_object():
    pair_sums = fast.pair_sums or pytest.skip("there is no extension")
    no, ns = (0, 0), (0, 10**6)
    sums = PairSums(*pair_sums((-1, 0), (TRANSPARENT, 0), (0, 700), no, ns, ns))
    assert sums.self_ns[1] is sums.raw_ns[1] is sums.cum_ns[1] is sums.raw_cum_ns[1]
    assert sums.calls[1] is sums.outer[1]
    assert not sums.nested
    assert not sums.more


def test_the_sums_of_a_pair_with_one_node_are_that_node_s_numbers():
    pair_sums = fast.pair_sums or pytest.skip("there is no extension")
    calls, own, raw, no = (0, 700, 800, 900), (0, 5000, 6000, 7000), (0, 5001, 6001, 7001), (0,) * 4
    groups = (TRANSPARENT, 300, 301, 301)
    sums = PairSums(*pair_sums((-1, 0, 0, 0), groups, calls, no, own, raw))
    assert sums.callee[1] is groups[1]
    assert sums.calls[1] is calls[1]
    assert sums.self_ns[1] is own[1]
    assert sums.raw_ns[1] is raw[1]
    assert (sums.calls[2], sums.self_ns[2], sums.raw_ns[2]) == (1700, 13000, 13002)


@pytest.mark.parametrize(
    ("calls", "own"),
    [((0, 2**63), (0, 0)), ((0, 2**62, 2**62), (0, 0, 0)), ((0, 1), (0, 0.5)), ((0, 1), (0, -1))],
)
def test_numbers_that_the_extension_cannot_sum_are_summed_in_python(calls, own):
    n = len(own)
    nodes = NodeTable((-1, 0, 0)[:n], (0,) * n, calls, (0,) * n, (0,) * n)
    row = flatten(nodes, (TRANSPARENT, *[7] * (n - 1)), own).rows[7]
    assert (row.calls, row.self_ns) == (sum(calls), sum(own))


def test_the_extension_refuses_what_is_no_tree():
    pair_sums = fast.pair_sums or pytest.skip("there is no extension")
    no = (0, 0)
    for parent in ((-1, 1), (-1, 2), (-1, -1), (0, 0), (-1, 2**70), (-1, None)):
        assert pair_sums(parent, (-1, 0), no, no, no, no) is None
    assert pair_sums((-1, 0), (-1, 2**31), no, no, no, no) is None
    for columns in ([()] * 6, [no] * 5, [no, no, no, no, no, (0,)]):
        with pytest.raises(ValueError, match="six equal columns"):
            pair_sums(*columns)
    with pytest.raises(TypeError):
        pair_sums(*[5] * 6)
