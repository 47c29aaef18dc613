"""The fold of libraries into the program's functions."""

from __future__ import annotations

from fastprof.report.program import kind_of, led_to, library_name
from unit.snapshots import Builder, Node, py

LIBRARY = "/usr/lib/python3/site-packages/lib/core.py"
IMPORT = "<frozen importlib._bootstrap>"


def test_the_first_public_function_of_a_library_stands_for_what_it_calls() -> None:
    inner = Node(py("inner", file=LIBRARY), children=[Node(py("back"), children=[])])
    public = Node(py("public", file=LIBRARY), children=[inner])
    private = Node(py("_private", file=LIBRARY), children=[public])
    found = Node(py("_find_and_load", file=IMPORT), children=[Node(py("public", file=LIBRARY))])
    builder = Builder()
    builder.thread(Node(py("work"), children=[private, found]))
    made = builder.snapshot()
    nodes, keys = made.threads[0].nodes, made.keys
    kinds = {i: kind_of(key) for i, key in enumerate(keys)}
    called = led_to(nodes.parent, nodes.key, keys, kinds)
    names = [
        (keys[key].name, library_name(keys[nodes.key[by]]) if by else "")
        for key, by in zip(nodes.key, called)
    ]
    assert sorted(names[1:]) == [
        ("_find_and_load", "imports"),
        ("_private", "_private"),
        ("back", ""),
        ("inner", "public"),
        ("public", "imports"),
        ("public", "public"),
        ("work", ""),
    ]
