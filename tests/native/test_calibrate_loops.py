"""The loops of the calibration cause exactly the events by which it divides their costs."""

from __future__ import annotations

import sys

import pytest
from fastprof._core import Recorder
from fastprof.capture.calibrate import _inside_ns, calibration
from fastprof.capture.calibrate_loops import LOOPS, NESTED_TURN, TURNS


def recorded(backend, run):
    """Return ``(kind, label, calls, resumes)`` of every node of ``run()``."""
    recorder = Recorder(backend=backend)
    recorder.enable()
    run()
    recorder.disable()
    data = recorder.export()
    ((_, _, (_, key, calls, resumes, *_)),) = data["threads"]
    return [
        (data["keys"][k][0], data["keys"][k][4].rsplit(".", 1)[-1], n, m)
        for k, n, m in zip(key, calls, resumes, strict=True)
    ]


@pytest.mark.parametrize("kind", sorted(set(LOOPS) - {"nothing", "work", "nested"}))
def test_a_loop_makes_so_many_events_of_its_kind(backend, kind):
    if backend == "setprofile" and kind in ("constructor", "text"):
        pytest.skip("not announced by this hook")
    loop = LOOPS[kind]
    # The time inside belongs to functions that work without calls; count the others.
    labels = loop.labels | {"_same", "_read_twice"}
    rows = [row for row in recorded(backend, loop.run) if row[1] in labels]
    events = sum(calls + resumes for _, _, calls, resumes in rows)
    # A generator begins once, before its first resume (of `made` it is counted in `calls`).
    assert events == TURNS * loop.calls + (kind in ("resume", "fed"))
    of = {"c": "c", "method": "c", "c_general": "c", "constructor": "type", "text": "type"}
    assert {row[0] for row in rows} == {of.get(kind, "python")}


def test_the_loop_of_nested_calls_makes_as_many_as_it_is_divided_by():
    recorder = Recorder(backend="auto")
    recorder.enable()
    LOOPS["nested"].run()
    recorder.disable()
    data = recorder.export()
    ((_, _, (parent, key, calls, *_)),) = data["threads"]
    kinds = [data["keys"][k][0] for k in key]
    labels = [data["keys"][k][4].rsplit(".", 1)[-1] for k in key]
    callers = {"_tree", "_passes", "_checks"}
    called = callers | {"_short", "abs", "isinstance"}
    inner = [i for i, label in enumerate(labels) if label in called]
    made = {kind: sum(calls[i] for i in inner if kinds[i] == kind) / TURNS for kind in NESTED_TURN}
    assert made == NESTED_TURN
    nested = sum(calls[i] for i in inner if labels[parent[i]] in callers)
    assert nested == TURNS * LOOPS["nested"].calls


@pytest.mark.skipif(sys.version_info < (3, 12), reason="forms are told by the other hook only")
@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("python", "short"),
        ("nested", "short"),
        ("general", "general"),
        ("unpacked", "unpacked"),
        ("implicit", "implicit"),
        ("made", "short"),
        ("c", "short"),
        ("method", "short"),
        ("c_general", "general"),
    ],
)
def test_a_loop_makes_its_calls_in_the_form_that_it_stands_for(kind, form):
    loop = LOOPS[kind]
    recorder = Recorder(backend="monitoring")
    recorder.enable()
    loop.run()
    recorder.disable()
    data = recorder.export()
    told = dict(data["forms"])
    names = {i: key[4].rsplit(".", 1)[-1] for i, key in enumerate(data["keys"])}
    assert {told.get(i, "short") for i, name in names.items() if name in loop.labels} == {form}


def test_the_time_inside_is_that_of_the_loops_own_callees(backend):
    recorder = Recorder(backend=backend)
    recorder.enable()
    for loop in LOOPS.values():
        loop.run()
    recorder.disable()
    announced = set(LOOPS) - {"nothing", "work"}
    if backend == "setprofile":
        announced -= {"constructor", "text"}
    assert set(_inside_ns(recorder)) == announced


def test_every_kind_has_a_cost(backend):
    found = calibration(backend)
    assert found is not None
    for kind, cost in found.costs().items():
        assert cost.inside_ns >= 0, kind
        assert cost.outside_ns >= 0, kind
    assert found.python.inside_ns + found.python.outside_ns > 0
