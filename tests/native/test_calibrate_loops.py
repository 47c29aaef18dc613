"""The loops of the calibration make the events that their costs are divided by."""

from __future__ import annotations

import pytest
from fastprof._core import Recorder
from fastprof.capture.calibrate import _inside_ns, calibration
from fastprof.capture.calibrate_loops import LOOPS, MIXED_EVENTS, TURNS, mixed


def recorded(backend, run):
    """``(kind, label, calls, resumes)`` of every node of ``run()``."""
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


@pytest.mark.parametrize("kind", sorted(set(LOOPS) - {"nothing"}))
def test_a_loop_makes_so_many_events_of_its_kind(backend, kind):
    if backend == "setprofile" and kind == "constructor":
        pytest.skip("not announced by this hook")
    loop = LOOPS[kind]
    rows = [row for row in recorded(backend, loop.run) if row[1] in loop.labels]
    events = sum(calls + resumes for _, _, calls, resumes in rows)
    # A generator begins once, before its first resume.
    assert events == TURNS * loop.calls + (kind == "resume")
    of = {"c": "c", "method": "c", "constructor": "type"}.get(kind, "python")
    assert {row[0] for row in rows} == {of}


def test_the_mixed_program_makes_the_events_that_it_is_compared_with(backend):
    rows = recorded(backend, mixed)
    found = {"python": 0, "c": 0, "method": 0}
    for kind, label, calls, _ in rows:
        if kind == "python" and label != "mixed":
            found["python"] += calls
        elif kind == "c" and label != "disable":
            found["method" if label == "get" else "c"] += calls
    assert found == MIXED_EVENTS


def test_the_time_inside_is_that_of_the_loops_own_callees(backend):
    recorder = Recorder(backend=backend)
    recorder.enable()
    for loop in LOOPS.values():
        loop.run()
    mixed()
    recorder.disable()
    announced = set(LOOPS) - {"nothing"}
    if backend == "setprofile":
        announced -= {"constructor"}
    assert set(_inside_ns(recorder)) == announced


def test_every_kind_has_a_cost(backend):
    found = calibration(backend)
    assert found is not None
    for kind, cost in found.costs().items():
        assert cost.inside_ns >= 0, kind
        assert cost.outside_ns >= 0, kind
    assert found.python.inside_ns + found.python.outside_ns > 0
