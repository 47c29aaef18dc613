"""Subtracting the hook's own cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastprof.report.correct import correct
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot, Steps
from fastprof.snapshot.run_phases import PhaseTime
from hypothesis import given
from hypothesis import strategies as st
from unit.cprofile_model import replay
from unit.snapshots import (
    MS,
    TRUNCATED,
    Builder,
    Node,
    by_name,
    c,
    cost,
    method,
    py,
    replaced,
    section,
    tree,
    type_,
)


def test_each_kind_of_call_costs_its_callee_and_its_caller():
    callees = [
        Node(py("g", 2), 10, 5000),
        Node(c("len"), 20, 5000),
        Node(type_("Thing"), 30, 5000),
        Node(py("gen", 3), 1, 5000, resumes=40),
        Node(method("append"), 50, 5000),
    ]
    snapshot = tree(
        Node(py("f"), 1, 100_000, callees),
        root_ns=500,
        calibration=cost(python=(3, 5), resume=(7, 11), c=(13, 17), method=(19, 23)),
    )
    result = correct(snapshot)
    assert result.applied
    assert result.self_ns[0] == (
        500 - 5,  # called f
        100_000 - 3 - 10 * 5 - 20 * 17 - 30 * 17 - 41 * 11 - 50 * 23,
        5000 - 10 * 3,
        5000 - 20 * 13,
        5000 - 30 * 13,
        5000 - 41 * 7,
        5000 - 50 * 19,
    )
    assert result.overhead_ns == 8 + 80 + 600 + 900 + 41 * 18 + 2100
    assert result.clamped_ns == 0
    assert sum(snapshot.threads[0].nodes.self_ns) - sum(result.self_ns[0]) == result.overhead_ns


def test_a_constructor_and_its_init_have_separate_costs():
    thing = Node(type_("Thing"), 30, 9000, [Node(py("__init__", 4), 30, 5000)])
    snapshot = tree(
        Node(py("f"), 1, 100_000, [thing, Node(py("__init__", 5), 2, 500)]),
        calibration=cost(python=(3, 5), c=(13, 17), constructor=(19, 23), init=(29, 31)),
    )
    assert correct(snapshot).self_ns[0] == (
        0,
        100_000 - 3 - 30 * 23 - 2 * 5,  # super().__init__() is a call like any other
        9000 - 30 * 19 - 30 * 31,
        5000 - 30 * 29,
        500 - 2 * 3,
    )


def test_an_init_that_is_never_entered_straight_loses_nothing():
    thing = replace(type_("Slotted"), form="implicit")
    snapshot = tree(
        Node(thing, 30, 9000, [Node(py("__init__", 4), 30, 5000)]),
        calibration=cost(constructor=(19, 23), implicit=(2, 1), init=(29, 31)),
    )
    assert correct(snapshot).self_ns[0][1:] == (9000 - 30 * 19 - 30 * 1, 5000 - 30 * 2)


def test_a_function_that_no_call_instruction_calls_costs_less():
    by_operator = Node(replace(py("__add__", 2), form="implicit"), 10, 1000)
    from_c = Node(c("sorted"), 1, 1000, [Node(py("key", 3), 20, 1000)])
    by_name = Node(py("__call__", 4), 30, 1000)
    constructor = Node(type_("Thing"), 1, 1000, [Node(py("__new__", 5), 40, 1000)])
    snapshot = tree(
        Node(py("f"), 1, 9000, [by_operator, from_c, by_name, constructor]),
        calibration=cost(python=(3, 5), implicit=(2, 1)),
    )
    assert correct(snapshot).self_ns[0] == (
        0,
        9000 - 3 - 10 * 1 - 30 * 5,
        1000 - 10 * 2,
        1000 - 20 * 1,
        1000 - 20 * 2,
        1000 - 30 * 3,
        1000 - 40 * 1,
        1000 - 40 * 2,
    )


def test_a_call_beside_the_begin_or_the_end_of_its_caller_costs_more():
    # Each time it runs `f` makes one call, `g` two, `loop` many and `gen` one per resume.
    f = Node(py("f", 2), 10, 2000, [Node(c("len"), 10, 500)])
    g = Node(py("g", 3), 20, 3000, [Node(py("h", 4), 20, 900), Node(type_("T"), 20, 800)])
    looping = Node(py("loop", 5), 1, 4000, [Node(method("append"), 1000, 1000)])
    gen = Node(py("gen", 6), 1, 5000, [Node(c("abs"), 40, 600)], resumes=39)
    sums = Node(c("sum"), 1, 700, [Node(py("key", 7), 30, 800)])
    snapshot = tree(f, g, looping, gen, sums, root_ns=6000, calibration=cost(nested=3))
    nodes = snapshot.threads[0].nodes
    names = [snapshot.keys[key].name for key in nodes.key]
    taken = zip(names, nodes.self_ns, correct(snapshot).self_ns[0], strict=True)
    assert {name: raw - left for name, raw, left in taken if raw != left} == {
        "f": 10 * 3,
        "g": 40 * 3,
        "loop": 2 * 3,
        "gen": 40 * 3,
    }


def test_each_form_of_a_call_has_a_separate_cost():
    named = Node(replace(py("named", 2), form="general"), 10, 1000)
    starred = Node(replace(py("starred", 3), form="unpacked"), 20, 1000)
    printed = Node(replace(c("print"), form="general"), 30, 1000)
    made = Node(type_("str"), 2, 1000)
    summed = Node(c("sum"), 1, 1000, [Node(py("<genexpr>", 4), 1, 1000, resumes=5)])
    snapshot = tree(
        Node(py("f"), 1, 9000, [named, starred, printed, made, summed]),
        calibration=cost(
            general=(1, 2), unpacked=(3, 4), c_general=(5, 6), fed=(7, 8), text=(9, 10)
        ),
    )
    assert correct(snapshot).self_ns[0] == (
        0,
        9000 - 10 * 2 - 20 * 4 - 30 * 6 - 2 * 10,
        1000 - 10 * 1,
        1000 - 20 * 3,
        1000 - 30 * 5,
        1000 - 2 * 9,
        1000 - 6 * 8,
        1000 - 6 * 7,
    )


def test_who_makes_a_generator_pays_for_that_and_it_begins_as_it_goes_on():
    summed = Node(c("sum"), 30, 5000, [Node(py("<genexpr>", 4), 30, 9000, resumes=60)])
    looped = Node(py("batches", 5), 2, 4000, resumes=10)
    snapshot = tree(
        Node(py("f"), 1, 9000, [summed, looped]),
        calibration=cost(python=(3, 5), resume=(1, 2), fed=(7, 8), made=100),
    )
    assert correct(snapshot).self_ns[0] == (
        0,
        9000 - 3 - 30 * 100 - 2 * 100 - 12 * 2,
        5000 - 90 * 8,
        9000 - 90 * 7,
        4000 - 12 * 1,
    )


def test_a_section_pays_for_the_calls_made_in_it_and_nothing_for_itself():
    snapshot = tree(
        Node(section("forward"), 100, 1000, [Node(py("f"), 10, 1000)]),
        root_ns=50,
        calibration=cost(python=(1, 2)),
    )
    assert correct(snapshot).self_ns[0] == (50, 1000 - 20, 1000 - 10)


def test_calls_below_a_truncated_node_pay_both_parts_themselves():
    snapshot = tree(
        Node(TRUNCATED, 0, 0, [Node(py("f"), 10, 1000)]), calibration=cost(python=(1, 2))
    )
    result = correct(snapshot)
    assert result.self_ns[0] == (0, 0, 970)
    assert result.clamped_ns == 0


def test_no_time_becomes_negative_and_what_that_hides_is_stated():
    snapshot = tree(
        Node(py("f"), 1000, 1 * MS, [Node(c("len"), 1000, 10_000)]),
        calibration=cost(python=(10, 10), c=(50, 20)),
    )
    result = correct(snapshot)
    # The root cannot pay for the calls of f, nor len for its own.
    assert result.self_ns[0] == (0, 1 * MS - 10_000 - 20_000, 0)
    assert result.clamped_ns == 10_000 + 40_000
    overhead = build_report(snapshot).overhead
    assert overhead.clamped_ms == 0.05
    assert "0.050 ms" in overhead.text
    assert overhead.estimated_ms == 0.09


@pytest.mark.parametrize(("ns", "is_stated"), [(499, False), (501, True)])
def test_an_amount_that_the_text_would_round_to_nothing_is_not_stated(ns, is_stated):
    snapshot = tree(Node(py("f"), 1, 1 * MS), calibration=cost(python=(0, ns)))
    overhead = build_report(snapshot).overhead  # the root cannot pay
    assert overhead.clamped_ms == ns / 1e6
    assert (", except 0.001 ms where" in overhead.text) == is_stated
    assert "0.000 ms where" not in overhead.text


def test_without_calibration_nothing_is_corrected_and_the_report_says_so():
    snapshot = tree(Node(py("f"), 10, 1000))
    assert correct(snapshot).self_ns == (snapshot.threads[0].nodes.self_ns,)
    overhead = build_report(snapshot).overhead
    assert (overhead.estimated_ms, overhead.share, overhead.corrected) == (None, None, False)
    assert "not calibrated" in overhead.text
    assert overhead.text in build_report(snapshot).to_text(full=True)


def test_an_external_timer_is_never_corrected():
    snapshot = tree(
        Node(py("f"), 10, 1000), calibration=cost(python=(5, 5)), meta={"timer": "external"}
    )
    report = build_report(snapshot)
    assert report.functions[0].self_ms == report.functions[0].raw_self_ms == 0.001
    assert "external timer" in report.overhead.text


def test_an_uncorrected_report_still_states_the_overhead():
    snapshot = tree(Node(py("f"), 10, 1 * MS), calibration=cost(python=(5, 5)))
    report = build_report(snapshot, correct_times=False)
    assert report.functions[0].self_ms == 1.0
    assert not report.overhead.corrected
    assert report.overhead.estimated_ms == 0.0001
    assert "included" in report.overhead.text


def test_raw_and_corrected_times_stand_side_by_side():
    builder = Builder().thread(
        Node(section("forward"), 10, 0, [Node(py("f"), 1000, 10 * MS)]), root_ns=90 * MS
    )
    snapshot = builder.snapshot(
        calibration=cost(python=(1000, 0)), sections=(builder.stats("forward", [MS] * 10),)
    )
    report = build_report(snapshot)
    (row,) = report.functions
    assert (row.raw_self_ms, row.self_ms, row.raw_cum_ms, row.cum_ms) == (10, 9, 10, 9)
    forward = by_name(report.sections)["forward"]
    assert (forward.raw_total_ms, forward.total_ms, forward.self_ms) == (10, 9, 9)
    # Single entries are corrected in proportion, so count x mean remains the total.
    assert (forward.mean_ms, forward.min_ms, forward.p50_ms, forward.max_ms) == (0.9,) * 4
    assert forward.share == 9 / 100
    assert report.overhead.share == 1 / 100


events = st.lists(
    st.tuples(
        st.sampled_from(["call", "resume", "section", "type", "leave"]),
        st.integers(0, 5),
        st.integers(0, 1000),
    ),
    max_size=40,
)
costs = st.tuples(st.floats(0, 500), st.floats(0, 500))


@given(st.lists(events, max_size=2), costs, costs, costs)
def test_nothing_is_lost_between_raw_overhead_and_clamped(threads, python, resume, builtin):
    _, snapshot = replay(threads)
    snapshot = replaced(snapshot, calibration=cost(python, resume, builtin, builtin))
    result = correct(snapshot)
    raw = sum(sum(t.nodes.self_ns) for t in snapshot.threads)
    corrected = sum(sum(column) for column in result.self_ns)
    nodes = sum(len(t.nodes) for t in snapshot.threads)
    assert all(ns >= 0 for column in result.self_ns for ns in column)
    assert abs(raw - corrected - (result.overhead_ns - result.clamped_ns)) <= nodes / 2 + 1


def test_a_report_makes_its_view_and_corrects_it_once(monkeypatch) -> None:
    made = []
    only = Snapshot.only
    monkeypatch.setattr(Snapshot, "only", lambda self, *n: made.append(n) or only(self, *n))
    build = Builder()
    build.thread(Node(py("work"), 5, 5_000))
    snapshot = build.snapshot(
        steps=Steps(count=5, sum_ns=5_000), phases=(PhaseTime("steps", 5_000, 1),)
    )
    assert build_report(snapshot).phase == "steps"
    assert made == [("steps",)]
