"""Walks of a tree, against the path of each node."""

from __future__ import annotations

from fastprof.report.tree import at_or_below, upward
from fastprof.snapshot import NodeTable
from hypothesis import given
from hypothesis import strategies as st

KEYS = 4


@st.composite
def trees(draw: st.DrawFn) -> NodeTable:
    n = draw(st.integers(1, 12))
    parent = (-1, *(draw(st.integers(0, i - 1)) for i in range(1, n)))
    key = (0, *(draw(st.integers(0, KEYS - 1)) for _ in range(1, n)))
    return NodeTable(parent, key, *[(0,) * n] * 3)


marks = st.lists(st.booleans(), min_size=KEYS, max_size=KEYS)


@given(trees(), marks)
def test_a_node_is_below_what_is_on_its_path(nodes: NodeTable, marked: list[bool]) -> None:
    for node, found in enumerate(at_or_below(nodes, marked)):
        path = [*upward(nodes, node)]
        assert path[-1] == 0
        assert found == any(marked[nodes.key[i]] for i in path[:-1])


@given(trees(), marks, marks)
def test_below_an_end_only_what_is_marked_again_counts(
    nodes: NodeTable, marked: list[bool], until: list[bool]
) -> None:
    for node, found in enumerate(at_or_below(nodes, marked, until=until)):
        nearest = (nodes.key[i] for i in [*upward(nodes, node)][:-1])
        key = next((key for key in nearest if marked[key] or until[key]), None)
        assert found == (key is not None and marked[key])
