"""The slowest steps in a report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fastprof.report.outliers import Outlier
from fastprof.results.report import Report, build_report
from fastprof.snapshot import Snapshot, Steps
from fastprof.snapshot.outliers import OutlierRow, OutlierSnapshot, OutlierStep
from fastprof.snapshot.steps import StepSeries
from hypothesis import given
from hypothesis import strategies as st
from unit.hostile import NAMES
from unit.snapshots import MS, TRUNCATED, Builder, Node, c, py, section

#: Rows of the tree below, in its order.
THREAD, MAIN, DATA, READ, OPEN, FORWARD, CALL, PRINT = range(8)
USUAL_MS = 10
COUNT, SKIPPED = 23, 3


def builder(name: str = "read", file: str = "dataset.py") -> Builder:
    """main: data(read(open)), forward(call), print."""
    read = Node(py(name, 40, f"/x/{file}", name), 1, MS, [Node(c("open"), 1, MS)])
    main = Node(py("main", 3), 1, MS, [
        Node(section("data"), 1, MS, [read]),
        Node(section("forward"), 1, MS, [Node(py("call", 9), 1, MS)]),
        Node(c("print"), 1, MS),
    ])  # fmt: skip
    return Builder().thread(main)


def kept(index: int, took: dict[int, int], **more: Any) -> OutlierStep:
    """Return a step in which nodes took ``took`` ms, with their usual times."""
    usual = {READ: 4, OPEN: 1, CALL: 4, MAIN: 1}
    rows = tuple(
        OutlierRow(node, ms * MS, 1, 0, usual.get(node, 0) * 19 * MS, 19 if node in usual else 0)
        for node, ms in took.items()
    )
    wall = sum(took.values()) * MS
    made: dict[str, Any] = {
        "index": index, "start_ns": index * USUAL_MS * MS, "wall_ns": wall, "usual": False,
        "sections": ((2, (took.get(READ, 0) + took.get(OPEN, 0)) * MS),
                     (5, took.get(CALL, 0) * MS)),
        "window_steps": 1, "window_ns": wall, "window_usual": False, "rows": rows, "rest_ns": 0,
    }  # fmt: skip
    return OutlierStep(**{**made, **more})


def snapshot(*steps: OutlierStep, made: Builder | None = None, **more: Any) -> Snapshot:
    taken = made or builder()
    recent = (USUAL_MS * MS,) * (COUNT - SKIPPED - len(steps)) + tuple(s.wall_ns for s in steps)
    fields: dict[str, Any] = {
        "thread": 0, "limit": 5, "usual_steps": 19, "usual_ns": 19 * USUAL_MS * MS,
        "usual_sections": ((2, 19 * 5 * MS), (5, 19 * 4 * MS)), "usual_row_steps": 19,
        "kept": steps,
    }  # fmt: skip
    return replace(
        taken.snapshot(),
        steps=Steps(COUNT, SKIPPED, sum(recent), 0.0, min(recent), max(recent), recent),
        outliers=OutlierSnapshot(**{**fields, **more}),
    )


def outliers(*steps: OutlierStep, **more: Any) -> tuple[Outlier, ...]:
    return build_report(snapshot(*steps, **more)).steps.outliers


SLOW_READ = {READ: 90, OPEN: 30, CALL: 4, MAIN: 1}


def test_the_section_and_the_functions_that_took_longer_are_named() -> None:
    (found,) = outliers(kept(12, SLOW_READ))
    assert (found.index, found.wall_ms, found.typical_ms, found.ratio) == (12, 125, 10, 12.5)
    assert found.start_ms == 120
    assert [(s.name, s.ms, s.typical_ms, s.excess_ms) for s in found.sections] == [
        ("data", 120, 5, 115),
        ("forward", 4, 4, 0),
        ("(unaccounted)", 1, 1, 0),
    ]
    first, second = found.functions
    assert (first.qualname, first.file, first.line) == ("read", "/x/dataset.py", 40)
    assert (first.section, first.ms, first.typical_ms, first.excess_ms) == ("data", 90, 4, 86)
    assert (second.qualname, second.caller, second.excess_ms) == (
        "open",
        "read (dataset.py:40)",
        29,
    )
    assert found.sentences == (
        "step 12: 125 ms instead of 10.0 ms (12.5x)",
        "+115 ms in data: read (dataset.py:40) +86.0 ms",
        "... in data: open called by read (dataset.py:40) +29.0 ms",
    )


def test_sections_of_an_outlier_add_up_to_the_step() -> None:
    (found,) = outliers(kept(12, SLOW_READ))
    assert sum(s.ms for s in found.sections) == pytest.approx(found.wall_ms)
    assert sum(s.excess_ms for s in found.sections) == pytest.approx(
        found.wall_ms - found.typical_ms
    )


def test_many_calls_instead_of_few_are_said() -> None:
    step = kept(12, SLOW_READ)
    rows = (replace(step.rows[0], calls=40), *step.rows[1:])
    (found,) = outliers(replace(step, rows=rows))
    assert "read (dataset.py:40) +86.0 ms (40 calls instead of 1)" in found.sentences[1]


def test_a_function_that_exceeds_its_section_has_the_rest_beside_it() -> None:
    (found,) = outliers(kept(12, {OPEN: 30, CALL: 4, MAIN: 1}))
    assert found.sentences[1] == (
        "+25.0 ms in data: open called by read (dataset.py:40) +29.0 ms (rest -4.00 ms)"
    )


def test_time_outside_of_sections_is_named_by_function() -> None:
    (found,) = outliers(kept(12, {PRINT: 2000, READ: 4, CALL: 4}))
    assert found.sentences[0] == "step 12: 2.01 s instead of 10.0 ms (200.8x)"
    assert (
        found.sentences[1]
        == ("+2.00 s outside of sections: print called by main (prog.py:3) +2.00 s ").strip()
    )


def test_steps_that_are_hardly_slower_are_no_outliers() -> None:
    assert outliers(kept(12, {READ: 15})) == ()
    assert len(outliers(kept(12, {READ: 16}))) == 1


def test_the_slowest_comes_first() -> None:
    found = outliers(kept(5, {READ: 40}), kept(9, {READ: 90}), kept(3, {CALL: 60}))
    assert [o.index for o in found] == [9, 3, 5]


def test_an_outlier_that_counts_as_usual_is_taken_out_of_it() -> None:
    """Before a second step existed to compare with, the first counted as usual."""
    slow = kept(3, SLOW_READ, usual=True, window_usual=True)
    with_it = {
        "usual_steps": 20,
        "usual_ns": (19 * USUAL_MS + 125) * MS,
        "usual_sections": ((2, (19 * 5 + 120) * MS), (5, (19 * 4 + 4) * MS)),
        "usual_row_steps": 20,
    }
    rows = tuple(
        replace(row, usual_ns=row.usual_ns + row.self_ns, usual_calls=row.usual_calls + 1)
        for row in slow.rows
    )
    (found,) = outliers(replace(slow, rows=rows), **with_it)
    (same,) = outliers(kept(3, SLOW_READ))
    assert found == same


def test_a_step_that_is_usual_all_alone_is_compared_with_the_median() -> None:
    slow = kept(3, SLOW_READ, usual=True, window_usual=True)
    (found,) = outliers(slow, usual_steps=1, usual_ns=125 * MS, usual_row_steps=1)
    assert found.typical_ms == USUAL_MS
    assert found.functions == ()
    assert found.sentences[0].startswith("step 3: 125 ms instead of 10.0 ms")
    assert "the usual times of its functions are not known" in found.sentences[-1]


def test_where_each_look_saw_a_slow_step_the_others_are_what_is_usual() -> None:
    """On a loaded machine every window may contain a slow step."""
    took = {READ: 19 * 4 + 90, OPEN: 19 + 30, CALL: 20 * 4, MAIN: 20}
    slow = kept(12, SLOW_READ)
    made = snapshot(slow, usual_row_steps=0)
    tree = made.threads[0]
    ns = tuple(took.get(i, 0) * MS for i in range(len(tree.nodes)))
    nodes = replace(tree.nodes, self_ns=ns, calls=(20,) * len(ns))
    (found,) = build_report(replace(made, threads=(replace(tree, nodes=nodes),))).steps.outliers
    assert [(f.qualname, f.excess_ms) for f in found.functions] == [("read", 86), ("open", 29)]
    assert "not known" not in " ".join(found.sentences)
    # A tree that also contains set-up does not describe steps.
    more = replace(nodes, self_ns=(ns[0] + 10**9, *ns[1:]))
    (none,) = build_report(replace(made, threads=(replace(tree, nodes=more),))).steps.outliers
    assert none.functions == ()


def test_a_window_of_steps_says_so_and_takes_off_what_is_usual() -> None:
    """Four usual steps and a slow one: the extra time still belongs to the slow one."""
    window = {READ: 90 + 16, OPEN: 30 + 4, CALL: 20, MAIN: 5}
    step = kept(12, window, wall_ns=125 * MS, window_steps=5,
                sections=((2, 120 * MS), (5, 4 * MS)))  # fmt: skip
    (found,) = outliers(step)
    assert [(f.qualname, f.excess_ms) for f in found.functions] == [("read", 86), ("open", 29)]
    assert found.window_steps == 5
    assert "those of the 5 steps up to it" in found.sentences[-1]


def test_a_step_without_detail_keeps_its_sections() -> None:
    step = kept(12, SLOW_READ, window_steps=0, window_ns=0, rows=())
    (found,) = outliers(step)
    assert found.functions == ()
    assert found.sentences[1] == "+115 ms in data"
    assert "no function detail" in found.sentences[-1]


def test_without_functions_there_are_sections_only() -> None:
    made = Builder().thread(Node(section("data"), 1, MS), Node(section("forward"), 1, MS))
    rows = (OutlierRow(1, 120 * MS, 1, 0, 19 * 5 * MS, 19), OutlierRow(0, 5 * MS, 0, 0, 0, 0))
    step = replace(
        kept(12, SLOW_READ), rows=rows, sections=((1, 120 * MS), (2, 4 * MS))
    )  # fmt: skip
    usual = ((1, 19 * 5 * MS), (2, 19 * 4 * MS))
    (found,) = outliers(step, made=made, usual_sections=usual)
    assert found.sentences[1:] == ("+115 ms in data",)
    assert [f.kind for f in found.functions] == ["section", "root"]


def test_what_the_series_of_steps_knows_is_said() -> None:
    n = COUNT - SKIPPED
    row = 12 - SKIPPED

    def column(usual: int, here: int) -> tuple[int, ...]:
        return tuple(here if i == row else usual for i in range(n))

    series = StepSeries(
        first=SKIPPED,
        start_ns=tuple(range(n)),
        wall_ns=(10 * MS,) * n,
        cpu_ns=column(9 * MS, 12 * MS),
        gc_ns=column(1 * MS, 81 * MS),
        switches=column(0, 30),
    )
    plain = snapshot(kept(12, SLOW_READ))
    (found,) = build_report(
        replace(plain, steps=replace(plain.steps, series=series))
    ).steps.outliers
    assert (found.gc_ms, found.cpu_ms, found.switches) == (81, 12, 30)
    assert found.sentences[3:] == (
        "garbage collection took +80.0 ms of it",
        "only 3.00 ms of the extra time was CPU work; the rest was waiting",
        "taken off the CPU 30 times (usually 0)",
    )
    without_cpu = replace(series, cpu_wait_ns=column(MS, 12 * MS))
    (found,) = build_report(
        replace(plain, steps=replace(plain.steps, series=without_cpu))
    ).steps.outliers
    # Durations come before counts.
    assert found.sentences[4:] == (
        "only 3.00 ms of the extra time was CPU work; the rest was waiting",
        "for 11.0 ms of it the thread was ready to run, but had no CPU",
    )
    # Faults of the five steps before, reported after this one; or of five steps each.
    seldom = tuple(30 if i % 6 == row % 6 else 0 for i in range(n))
    (found,) = build_report(
        replace(plain, steps=replace(plain.steps, series=replace(series, switches=seldom)))
    ).steps.outliers
    assert found.switches == 30
    assert len(found.sentences) == 5
    short = replace(series, first=15)  # the ring has forgotten that step
    (found,) = build_report(replace(plain, steps=replace(plain.steps, series=short))).steps.outliers
    assert (found.gc_ms, found.cpu_ms, found.switches) == (None, None, None)


def test_where_the_step_waited_for_a_cpu_no_function_is_blamed() -> None:
    """The time falls into any function that ran then: ten such lines did not help."""
    n, row = COUNT - SKIPPED, 12 - SKIPPED
    series = StepSeries(
        first=SKIPPED,
        start_ns=tuple(range(n)),
        wall_ns=(10 * MS,) * n,
        cpu_wait_ns=tuple(80 * MS if i == row else MS for i in range(n)),
    )
    plain = snapshot(kept(12, SLOW_READ))
    (found,) = build_report(
        replace(plain, steps=replace(plain.steps, series=series))
    ).steps.outliers
    assert found.sentences[1:] == (
        "+115 ms in data",
        (
            "for 79.0 ms of it the thread was ready to run, but had no CPU; chance decided in "
            "which function it was"
        ),
    )
    assert found.functions  # the values remain


def text_and_json(report: Report) -> tuple[str, dict[str, Any]]:
    return report.to_text(full=True), json.loads(report.to_json())


def test_the_table_and_json_have_them() -> None:
    text, data = text_and_json(build_report(snapshot(kept(12, SLOW_READ))))
    assert "Slowest steps and what was different" in text
    (line,) = (line for line in text.splitlines() if "+115 ms in data" in line)
    assert line.split()[:4] == ["12", "125", "10.0", "12.5"]
    (one,) = data["steps"]["outliers"]
    assert one["index"] == 12
    assert one["functions"][0]["excess_ms"] == 86
    assert one["sections"][0]["name"] == "data"


def test_without_an_outlier_there_is_no_table() -> None:
    text, data = text_and_json(build_report(snapshot()))
    assert "Slowest steps" not in text
    assert data["steps"]["outliers"] == []


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_f43_hostile_names_do_no_harm(name: str) -> None:
    made = builder(name, name)
    text, _ = text_and_json(build_report(snapshot(kept(12, SLOW_READ), made=made)))
    assert all(line.isprintable() for line in text.splitlines())
    assert len(text) < 20_000


@st.composite
def trees_and_rows(draw: st.DrawFn) -> tuple[Builder, tuple[OutlierRow, ...], int]:
    """Draw any tree, rows of some of its nodes, and a rest."""
    made = Builder()
    for key in (TRUNCATED, py("f"), c("g"), section("s"), section("data"), py("h", 0, "")):
        made.key(key)
    n = draw(st.integers(1, 12))
    parents = [-1] + [draw(st.integers(0, i - 1)) for i in range(1, n)]
    keys = [0] + [draw(st.integers(1, len(made.keys) - 1)) for _ in range(1, n)]
    made.thread()
    columns = (tuple(parents), tuple(keys), (1,) * n, (0,) * n, (1,) * n)
    table = type(made.threads[0].nodes)(*columns)
    made.threads[0] = replace(made.threads[0], nodes=table)
    number = st.integers(0, 2**40)
    chosen = draw(st.sets(st.integers(0, n - 1)))
    rows = tuple(OutlierRow(node, *(draw(number) for _ in range(5))) for node in chosen)
    return made, rows, draw(number)


@given(trees_and_rows(), st.integers(0, 20), st.integers(0, 2**40), st.booleans(), st.booleans())
def test_any_outlier_makes_a_report(
    tree: tuple[Builder, tuple[OutlierRow, ...], int],
    usual_steps: int,
    usual_ns: int,
    usual: bool,
    window_usual: bool,
) -> None:
    made, rows, rest = tree
    window = sum(row.self_ns for row in rows) + rest
    step = OutlierStep(12, 0, window, usual, (), 1, window, window_usual, rows, rest)
    taken = snapshot(step, made=made, usual_steps=usual_steps, usual_ns=usual_ns,
                     usual_sections=(), usual_row_steps=usual_steps)  # fmt: skip
    assert Snapshot.from_dict(taken.to_dict()) == taken
    for found in build_report(taken).steps.outliers:
        total = sum(s.ms for s in found.sections)
        assert total == pytest.approx(found.wall_ms)
        assert all(f.ms <= found.wall_ms * (1 + 1e-9) for f in found.functions)
        assert all(f.typical_ms >= 0 and f.typical_calls >= 0 for f in found.functions)


def test_the_root_and_truncated_contexts_have_words() -> None:
    made = Builder().thread(Node(TRUNCATED, 1, MS, [Node(py("deep", 5), 1, MS)]))
    rows = tuple(OutlierRow(i, 100 * MS, 1, 0, 0, 0) for i in range(3))
    step = replace(
        kept(12, SLOW_READ), wall_ns=300 * MS, window_ns=300 * MS, rows=rows, sections=()
    )
    (found,) = outliers(step, made=made, usual_sections=())
    text = "\n".join(found.sentences)
    assert "code outside of the functions seen +100 ms" in text
    assert "(truncated) +100 ms" in text
    assert "deep (prog.py:5) +100 ms" in text
    assert {f.kind for f in found.functions} == {"root", "truncated", "python"}
