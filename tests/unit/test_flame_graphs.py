"""Collapsed stacks and speedscope files are the tree, exactly."""

from __future__ import annotations

import json

import pytest
from fastprof.export.depth import MAX_DEPTH
from fastprof.render import formats
from fastprof.report.correct import correct
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot
from hypothesis import given
from hypothesis import strategies as st
from unit.cprofile_model import replay
from unit.snapshots import MS, Builder, Node, c, cost, py, replaced, section, tree

events = st.lists(
    st.tuples(
        st.sampled_from(["call", "resume", "section", "type", "leave"]),
        st.integers(0, 5),
        st.integers(0, 10**6),
    ),
    max_size=40,
)


def stacks_of(snapshot, frame_name):
    """Return {stack of frames: ns} by following every node's parents."""
    total = {}
    for tree_, column in zip(snapshot.threads, correct(snapshot).self_ns, strict=True):
        nodes = tree_.nodes
        for i, ns in enumerate(column):
            if not ns:
                continue
            stack, at = [], i
            while at > 0:
                stack.append(frame_name(snapshot.keys[nodes.key[at]]))
                at = nodes.parent[at]
            path = (tree_.name, *reversed(stack))
            total[path] = total.get(path, 0) + ns
    return total


def collapsed(snapshot):
    total = {}
    for line in formats.render(build_report(snapshot), "collapsed").splitlines():
        stack, weight = line.rsplit(" ", 1)
        path = tuple(stack.split(";"))
        total[path] = total.get(path, 0) + int(weight)
    return total


def speedscope(snapshot):
    return json.loads(formats.render(build_report(snapshot), "speedscope"))


def replay_events(profile, frames):
    """Read a profile like the viewer: return {stack: weight}, and check the viewer's rules."""
    stack, total, now = [], {}, profile["startValue"]
    for event in profile["events"]:
        assert event["at"] >= now
        if event["at"] > now:
            assert stack, "time outside every frame"
            path = tuple(frames[f]["name"] for f in stack)
            total[path] = total.get(path, 0) + event["at"] - now
            now = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
        else:
            assert stack.pop() == event["frame"]
    assert stack == []
    assert now == profile["endValue"]
    return total


def label(key):
    if key.kind == "section":
        return f"[{key.name}]"
    return f"{key.qualname} ({key.file}:{key.line})" if key.kind == "python" else key.qualname


def name(key):
    return f"[{key.name}]" if key.kind == "section" else key.qualname


@given(st.lists(events, min_size=1, max_size=2), st.integers(0, 100))
def test_collapsed_stacks_are_the_tree(threads, ns):
    _, snapshot = replay(threads)
    snapshot = replaced(snapshot, calibration=cost((ns, ns), (ns, ns), (ns, ns), (ns, ns)))
    assert collapsed(snapshot) == stacks_of(snapshot, label)


@given(st.lists(events, min_size=1, max_size=2), st.integers(0, 100))
def test_a_speedscope_file_replays_to_the_tree(threads, ns):
    _, snapshot = replay(threads)
    snapshot = replaced(snapshot, calibration=cost((ns, ns), (ns, ns), (ns, ns), (ns, ns)))
    file = speedscope(snapshot)
    total = {}
    for profile in file["profiles"]:
        for path, weight in replay_events(profile, file["shared"]["frames"]).items():
            total[path] = total.get(path, 0) + weight
    assert total == stacks_of(snapshot, name)


def test_a_speedscope_file_has_what_its_schema_requires():
    builder = Builder()
    builder.thread(Node(py("f", 3), 1, 5, [Node(c("len"), 1, 7)]), root_ns=2)
    builder.thread(Node(section("data"), 1, 9), ident=2, name="worker")
    file = speedscope(builder.snapshot())
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert {"name": "f", "file": "prog.py", "line": 3} in file["shared"]["frames"]
    assert [p["name"] for p in file["profiles"]] == ["MainThread", "worker"]
    for profile in file["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "events"}
        assert (profile["type"], profile["unit"]) == ("evented", "nanoseconds")
        for event in profile["events"]:
            assert event["type"] in ("O", "C")
            assert type(event["at"]) is int
            assert 0 <= event["frame"] < len(file["shared"]["frames"])


def test_f35_more_time_than_javascript_can_count_gets_a_coarser_unit():
    (profile,) = speedscope(tree(Node(py("f"), 1, 2**60)))["profiles"]
    assert (profile["unit"], profile["endValue"]) == ("microseconds", 2**60 // 1000)
    assert profile["endValue"] <= 2**53


def test_frames_are_told_apart_by_what_they_are():
    snapshot = tree(
        Node(py("f", 3, qualname="Model.f"), 1, 1, [Node(section("f"), 1, 1), Node(c("len"), 1, 1)])
    )
    assert set(collapsed(snapshot)) == {
        ("MainThread", "Model.f (prog.py:3)"),
        ("MainThread", "Model.f (prog.py:3)", "[f]"),
        ("MainThread", "Model.f (prog.py:3)", "len"),
    }


def deep_tree(depth):
    node = Node(py("deep"), 1, 10)
    for _ in range(depth - 1):
        node = Node(py("deep"), 1, 10, [node])
    return tree(node)


def test_f29_a_graph_is_no_deeper_than_its_limit():
    depth = 3 * MAX_DEPTH
    snapshot = deep_tree(depth)
    lines = formats.render(build_report(snapshot), "collapsed").splitlines()
    assert max(line.count(";") for line in lines) == MAX_DEPTH
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == depth * 10
    (profile,) = speedscope(snapshot)["profiles"]
    assert len(profile["events"]) == 2 * (MAX_DEPTH + 1)
    assert profile["endValue"] == depth * 10


def test_what_took_no_time_is_left_out():
    snapshot = tree(Node(py("f"), 1, 0, [Node(c("len"), 5, 0)]), Node(py("g"), 1, 1 * MS))
    assert list(collapsed(snapshot)) == [("MainThread", "g (prog.py:1)")]
    file = speedscope(snapshot)
    assert len(file["profiles"][0]["events"]) == 4


@pytest.mark.parametrize("name", ["collapsed", "speedscope"])
def test_a_run_without_threads_has_an_empty_graph(name):
    made = formats.render(build_report(Snapshot(meta={}, duration_ns=0)), name)
    assert made == "" or json.loads(made)["profiles"] == []
