"""The content of a report: sections, steps, loaders, threads, notes."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from fastprof.errors import ExportError, UnknownSectionError
from fastprof.render import formats
from fastprof.report.figures import duration
from fastprof.report.framework import framework_of
from fastprof.report.from_stats import report_from_stats
from fastprof.report.phase_names import ALIASES
from fastprof.report.rows import UNACCOUNTED
from fastprof.results.report import Report, build_report
from fastprof.results.result import as_result
from fastprof.snapshot import LoaderStats, Snapshot, StepRow, Steps
from fastprof.snapshot.run_phases import PhaseTime
from fastprof.tables import report as tables
from hypothesis import given
from hypothesis import strategies as st
from unit.findings_runs import calls, run
from unit.snapshots import (
    MS,
    TRUNCATED,
    Builder,
    Node,
    by_name,
    c,
    cost,
    histogram,
    method,
    py,
    section,
    tree,
    type_,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def training_run():
    """Return ten steps, three of them warm-up, with two threads and two loaders."""
    builder = Builder()
    data = Node(section("data"), 10, 10 * MS, [Node(py("collate", 5, "/x/data.py"), 40, 40 * MS)])
    attention = Node(py("forward", 30, "/x/model.py", "Attention.forward"), 10, 60 * MS)
    attention.children = [
        Node(c("len"), 20_000, 20 * MS),
        Node(method("append"), 1000, 2 * MS),
        Node(type_("Tensor"), 10, 1 * MS),
    ]
    fib = Node(py("fib", 40, "/x/model.py"), 30, 9 * MS)
    fib = Node(py("fib", 40, "/x/model.py"), 10, 3 * MS, [fib])
    forward = Node(section("forward_pass"), 10, 5 * MS, [attention, fib])
    backward = Node(section("backward_pass"), 10, 100 * MS)
    train = Node(py("train", 1, "/x/train.py"), 1, 20 * MS, [data, forward, backward])
    builder.thread(train, root_ns=30 * MS)
    reader = Node(py("read", 9, "/x/data.py", "Reader.read"), 1, 200 * MS, resumes=99)
    builder.thread(reader, ident=0, name="(ended threads)", ended=True)
    steps = [25 * MS] * 6 + [40 * MS]
    return builder.snapshot(
        meta={"python": "3.12.1", "platform": "linux", "backend": "monitoring", "clock": "tsc",
              "pid": 4242, "rank": 0, "sync": True},
        sections=(
            builder.stats("data", [5 * MS] * 10),
            builder.stats("forward_pass", [10 * MS] * 9 + [30 * MS], errors=1),
            builder.stats("backward_pass", [10 * MS] * 10),
            builder.stats("sampling", [], open=1),
        ),
        steps=Steps(
            10, 3, sum(steps), math.fsum((ns / 1e9) ** 2 for ns in steps), min(steps), max(steps),
            tuple(steps), histogram(steps),
            (StepRow(builder.key(section("data")), 7, 35 * MS),
             StepRow(builder.key(section("forward_pass")), 7, 80 * MS),
             StepRow(builder.key(section("backward_pass")), 5, 70 * MS)),
        ),
        loaders=(
            LoaderStats("main", "train", 6, {"data": (6, 12 * MS), "forward": (6, 18 * MS)}, 0.7),
            LoaderStats("aux", "train", 4, {"data": (4, 20 * MS), "batch_wait": (3, 3 * MS)}, 0.3),
            LoaderStats("val", "val", 2, {}, None),
        ),
        calibration=cost((40, 60), (40, 60), (50, 50), (60, 70)),
        counters={"dropped": 3, "unbalanced": 0},
        notes=("The network was on fire.",),
    )  # fmt: skip


@pytest.fixture(scope="module")
def report():
    return build_report(training_run())


@pytest.mark.parametrize("name", ["screen.txt", "report.txt", "report.json"])
def test_the_report_is_the_golden_one(report, name):
    full = name == "report.txt"
    made = report.to_text(full=full) if name.endswith("txt") else report.to_json()
    assert made == (GOLDEN / name).read_text(encoding="ascii")


def test_the_report_is_frozen_and_printing_it_gives_its_text(report):
    assert str(report) == report.to_text()
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.wall_ms = 0
    assert report.snapshot == training_run()


def test_every_header_of_a_time_or_share_has_its_unit(report):
    for table in tables.all_tables(report):
        for i, header in enumerate(table.headers):
            figures = [row[i] for row in table.rows if row[i] not in ("", "n/a")]
            if any("." in cell and cell.replace(".", "").isdigit() for cell in figures):
                assert header.endswith((" ms", " %", "ms per step")) or header == "weight"


# ---- sections ----


def test_s3_09_sections_stand_in_the_order_of_first_use(report):
    names = [row.name for row in report.sections]
    assert names == ["data", "forward_pass", "backward_pass", "sampling"]


def test_a_section_that_was_never_left_has_no_figures(report):
    row = report.section("sampling")
    assert (row.count, row.open) == (0, 1)
    unknown = dataclasses.asdict(row)
    for name in ("name", "count", "errors", "open"):
        del unknown[name]
    assert set(unknown.values()) == {None}
    line = next(
        line for line in report.to_text(full=True).splitlines() if line.startswith("sampling")
    )
    assert line.split()[2:] == ["n/a"] * 9 + ["0"]


def test_gpu_figures_are_unknown_and_not_zero(report):
    assert {(r.gpu_ms, r.kernels, r.blocked_ms) for r in report.sections} == {(None, None, None)}


def test_a_phase_is_found_by_either_of_its_names(report):
    assert report.section("forward") is report.section("forward_pass")
    assert report.section("data_loading") is report.section("data")
    assert {ALIASES[ALIASES[name]] for name in ALIASES} == set(ALIASES)
    both = Builder()
    both.thread()
    snapshot = both.snapshot(
        sections=(both.stats("forward", [1]), both.stats("forward_pass", [1, 2]))
    )
    found = build_report(snapshot)
    assert found.section("forward").count == 1
    assert found.section("forward_pass").count == 2


def test_an_unknown_section_is_an_error_that_lists_the_known_ones(report):
    for look_up in (report.section, report.functions_in):
        with pytest.raises(KeyError, match="'data', 'forward_pass'") as caught:
            look_up("forwad")
        assert isinstance(caught.value, UnknownSectionError)
        assert str(caught.value).startswith("no section 'forwad' was recorded")
    with pytest.raises(KeyError, match="none"):
        build_report(Snapshot(meta={}, duration_ns=0)).section("forward")


def test_one_section_name_in_several_threads_is_one_row():
    builder = Builder()
    for ident in (1, 2):
        builder.thread(Node(section("forward"), 2, 20), ident=ident)
    snapshot = builder.snapshot(
        duration_ns=20,
        sections=(builder.stats("forward", [5, 15]), builder.stats("forward", [8, 12], thread=1)),
    )
    (row,) = build_report(snapshot).sections
    assert (row.count, row.total_ms, row.self_ms) == (4, 40 / MS, 40 / MS)
    assert (row.min_ms, row.max_ms, row.p50_ms) == (5 / MS, 15 / MS, 10 / MS)
    assert row.share == 2.0  # two threads at once


@pytest.mark.parametrize(("in_both", "share"), [(False, 1.0), (True, 1.7)])
def test_the_share_of_a_section_is_of_the_recorded_time(in_both, share):
    """As in the table of steps: fastprof's cost is part of the whole, not of the section."""
    builder = Builder()
    busy = Node(py("busy"), 1_000_000, 1000 * MS)
    builder.thread(Node(section("work"), 1, 0, [busy]) if in_both else busy)
    builder.thread(Node(section("work"), 1, 1000 * MS), ident=2)
    stats = [builder.stats("work", [1000 * MS], thread=thread) for thread in (1, 0)]
    made = builder.snapshot(sections=tuple(stats[: 1 + in_both]), calibration=cost(python=(300, 0)))
    (row,) = build_report(made).sections
    assert row.total_ms == (1700 if in_both else 1000)
    assert row.share == pytest.approx(share)


def test_self_time_leaves_out_nested_sections_but_not_functions():
    inner = Node(section("inner"), 1, 30 * MS)
    work = Node(py("work"), 1, 20 * MS, [inner])
    builder = Builder().thread(Node(section("outer"), 1, 10 * MS, [work]))
    snapshot = builder.snapshot(
        sections=(builder.stats("outer", [60 * MS]), builder.stats("inner", [30 * MS]))
    )
    rows = by_name(build_report(snapshot).sections)
    assert (rows["outer"].total_ms, rows["outer"].self_ms) == (60, 30)
    assert (rows["inner"].total_ms, rows["inner"].self_ms) == (30, 30)


def test_recursion_of_a_section_counts_its_time_once():
    builder = Builder().thread(
        Node(section("walk"), 1, 10 * MS, [Node(section("walk"), 1, 5 * MS)])
    )
    snapshot = builder.snapshot(
        sections=(builder.stats("walk", [15 * MS, 5 * MS], outer_ns=15 * MS),)
    )
    (row,) = build_report(snapshot).sections
    assert (row.count, row.total_ms, row.mean_ms, row.share) == (2, 15, 10, 1)


def test_functions_in_no_section_are_those_of_the_row_unaccounted():
    """The step table has this row, so a reader requests it by its name."""
    rollout = calls(py("rollout", 40, "/x/rl.py"), 20, 1, calls(py("reset", 3, "/x/env.py"), 5))
    inner = calls(py("net", 9, "/x/net.py"), 10)
    made = run({"forward": 30, "backward": 30}, inside={"": [rollout], "forward": [inner]})
    report = build_report(made)
    row = next(row for row in report.steps.rows if row.name == "(unaccounted)")
    functions = {f.name: f for f in report.functions_in("(unaccounted)")}
    assert set(functions) == {"train", "rollout", "reset"}
    whole = sum(f.self_ms for f in functions.values())
    assert whole / report.steps.count == pytest.approx(row.mean_ms, rel=0.01)
    with pytest.raises(UnknownSectionError):
        build_report(Snapshot(meta={}, duration_ns=0)).functions_in("(unaccounted)")


def test_functions_in_a_section_add_up_to_it(report):
    rows = report.functions_in("forward")
    assert {r.qualname for r in rows} == {
        "forward_pass", "Attention.forward", "len", "list.append", "Tensor", "fib",
    }  # fmt: skip
    inside = sum(r.self_ms for r in rows)
    assert inside == pytest.approx(report.section("forward").self_ms)
    own = next(r for r in rows if r.kind == "section")
    assert own.cum_ms == pytest.approx(inside)
    assert sum(r.share for r in rows) == pytest.approx(1)


# ---- functions and threads ----


def test_functions_stand_by_own_time_and_their_shares_add_up(report):
    times = [row.self_ms for row in report.functions]
    assert times == sorted(times, reverse=True)
    assert sum(row.share for row in report.functions) == pytest.approx(1)


def test_a_function_has_its_callers_and_callees(report):
    rows = {row.qualname: row for row in report.functions}
    assert [e.qualname for e in rows["Attention.forward"].callers] == ["train"]
    assert rows["Attention.forward"].callees[0].qualname == "len"
    fib = rows["fib"]
    assert (fib.calls, fib.primitive_calls) == (40, 10)
    assert {e.qualname: e.calls for e in fib.callers} == {"train": 10, "fib": 30}


def test_threads_have_separate_tables(report):
    main, ended = report.threads
    assert (ended.ident, ended.ended) == (0, True)
    assert [r.qualname for r in ended.functions] == ["Reader.read"]
    assert ended.functions[0].resumes == 99
    assert "Reader.read" not in {r.qualname for r in main.functions}
    assert main.raw_total_ms == pytest.approx(300)
    assert main.total_ms < main.raw_total_ms


def test_threads_of_one_name_are_one_row_with_their_number():
    builder = Builder()
    builder.thread(Node(py("train", 1, "/x/t.py"), 1, 100 * MS))
    for ident in (140282349745856, 140282235356864, 140282349745856):
        waits = Node(py("wait", 7, "/x/q.py"), 1, 10 * MS)
        builder.thread(waits, ident=ident, name=f"thread {ident}", ended=True)
    builder.thread(Node(py("feed", 9, "/x/q.py"), 1, 4 * MS), ident=5, name="thread 5", ended=True)
    for ms in (1, 5):
        builder.thread(Node(py(f"watch{ms}", ms), 1, ms * MS), ident=ms, name="monitor")
    table = tables.threads_table(build_report(builder.snapshot()))
    names = [(row[0], *row[-2:]) for row in table.rows]
    assert names == [
        ("MainThread", "1", "train"),
        ("unnamed (4 threads, ended)", "2", "wait"),
        ("monitor (2 threads)", "2", "watch5"),
    ]
    assert [float(row[1]) for row in table.rows] == [100, 34, 6]


# ---- steps ----


def test_the_rows_of_a_step_add_up_to_its_wall_time_exactly(report):
    steps = report.steps
    assert sum(row.total_ns for row in steps.rows) == steps.wall_ns == 190 * MS
    assert [row.name for row in steps.rows] == [
        "data", "forward_pass", "backward_pass", UNACCOUNTED,
    ]  # fmt: skip
    assert sum(row.share for row in steps.rows) == pytest.approx(1)
    assert sum(row.mean_ms for row in steps.rows) == pytest.approx(steps.mean_ms)


shares = st.lists(st.integers(0, 2**40), max_size=6)


@given(shares, st.integers(1, 1000), st.integers(0, 2**45))
def test_rows_add_up_whatever_the_sections_took(parts, count, rest):
    builder = Builder().thread()
    rows = [StepRow(builder.key(section(f"s{i}")), count, ns) for i, ns in enumerate(parts)]
    wall = sum(parts) + rest
    steps = Steps(count=count, sum_ns=wall, min_ns=0, max_ns=wall, rows=tuple(rows))
    table = build_report(builder.snapshot(steps=steps)).steps
    assert sum(row.total_ns for row in table.rows) == table.wall_ns == wall
    assert table.rows[-1].total_ns == rest


def test_s2_06_warm_up_steps_are_left_out_and_the_report_says_how_many(report):
    steps = report.steps
    assert (steps.count, steps.skipped, steps.measured) == (10, 3, 7)
    assert steps.mean_ms == pytest.approx(190 / 7)
    assert (steps.min_ms, steps.p50_ms, steps.max_ms) == (25, 25, 40)
    assert "7 steps measured, 3 skipped" in report.to_text(full=True)
    assert any("as warm-up: 3 steps" in note for note in report.notes)


def test_steps_that_were_all_warm_up_have_no_figures():
    steps = Steps(count=2, skipped=3)
    report = build_report(Snapshot(meta={}, duration_ns=0, steps=steps))
    assert report.steps.measured == 0
    assert (report.steps.wall_ms, report.steps.mean_ms, report.steps.rows) == (None, None, ())
    assert "2 steps, all warm-up" in str(report)


def test_percentiles_of_more_steps_than_are_kept_come_from_the_histogram():
    values = [i * MS for i in range(1, 1001)]
    steps = Steps(1000, 0, sum(values), 1.0, MS, 1000 * MS, tuple(values[-10:]), histogram(values))
    table = build_report(Snapshot(meta={}, duration_ns=0, steps=steps)).steps
    assert table.p50_ms == pytest.approx(500.5, rel=0.01)
    assert table.p99_ms == pytest.approx(990.01, rel=0.01)
    assert table.max_ms == 1000


# ---- loaders, notes, overhead ----


def test_s4_17_loaders_have_realized_and_configured_proportions(report):
    main, aux, val = report.loaders
    assert (main.realized, main.weight) == (0.6, 0.7)
    assert (aux.realized, aux.weight) == (0.4, 0.3)
    assert (val.realized, val.weight) == (1.0, None)
    assert (main.data_ms, main.forward_ms, main.backward_ms) == (2.0, 3.0, None)
    assert (aux.data_ms, aux.batch_wait_ms) == (5.0, 1.0)
    assert (val.data_ms, val.batch_wait_ms) == (None, None)


def test_counters_become_sentences_unless_they_are_zero(report):
    assert any(note.startswith("Events lost") and note.endswith(": 3.") for note in report.notes)
    assert not any("Calls closed" in note for note in report.notes)
    unknown = Snapshot(meta={}, duration_ns=0, counters={"logger_errors": 2})
    assert "Logger errors: 2." in build_report(unknown).notes


def test_what_must_be_known_about_the_figures_is_in_the_notes(report):
    notes = "\n".join(report.notes)
    assert "The network was on fire." in notes
    assert "Synchronized" in notes
    assert "still open, whose time is not in the table: 1." in notes
    assert "Python 3.11" not in notes
    text = " ".join(report.to_text(full=True).split())
    assert all(note in text for note in report.notes)


@pytest.mark.parametrize(
    ("meta", "children", "told"),
    [
        ({"python": "3.11.7", "backend": "setprofile"}, [Node(py("f"))], True),
        ({"python": "3.11.7", "backend": "setprofile"}, [Node(section("s"))], False),
        ({"python": "3.12.1", "backend": "setprofile"}, [Node(py("f"))], False),
        ({"python": "3.10.13", "backend": "setprofile"}, [Node(py("f"))], False),
    ],
)
def test_on_3_11_the_report_says_that_the_hook_slows_every_bytecode(meta, children, told):
    notes = build_report(tree(*children, meta=meta)).notes
    assert any("every bytecode" in note for note in notes) == told


def test_the_report_says_when_the_slower_hook_had_to_be_used():
    notes = build_report(Snapshot(meta={"fell_back": True}, duration_ns=0)).notes
    assert any("PyEval_SetProfile" in note for note in notes)


def test_a_note_counts_truncated_contexts_and_their_functions():
    snapshot = tree(
        Node(py("f"), 1, 5, [Node(TRUNCATED, 0, 0, [Node(py("g"), 7, 3)])]),
        counters={"truncated": 7},
    )
    report = build_report(snapshot)
    assert {r.qualname: r.calls for r in report.functions} == {"f": 1, "g": 7}
    assert any("depth or node cap" in note and ": 7." in note for note in report.notes)


def test_overhead_is_stated_with_its_share(report):
    assert report.overhead.corrected
    assert report.overhead.share == pytest.approx(report.overhead.estimated_ms / report.wall_ms)
    assert duration(report.overhead.estimated_ms) in report.overhead.text


def test_a_run_without_functions_says_so():
    builder = Builder().thread(Node(section("forward"), 1, 5))
    report = build_report(builder.snapshot(sections=(builder.stats("forward", [5]),)))
    assert report.overhead.text == "Functions were not recorded."
    assert report.functions == ()
    assert report.section("forward").raw_total_ms == report.section("forward").total_ms


def test_an_empty_run_has_a_report():
    report = build_report(Snapshot(meta={}, duration_ns=0))
    assert report.sections == report.functions == report.threads == ()
    assert json.loads(report.to_json())["functions"] == []
    assert "0 ms recorded" in str(report)


def test_formats_are_found_by_name_and_unknown_ones_refused():
    assert formats.format_named("pstats").suffixes == (".stats", ".prof", ".pstats")
    with pytest.raises(ExportError, match="trace, fprof, pstats"):
        formats.format_named("xml")


# ---- another phase ----


def test_a_stats_file_has_the_whole_run_and_no_other_phase():
    stats = report_from_stats({("a.py", 1, "f"): (1, 1, 0.5, 0.5, {})})
    report = as_result(Report, stats)
    assert report.in_phase("all") == report
    for phase in ("steps", "setup"):
        with pytest.raises(ValueError, match=rf"no phase '{phase}': a \.stats file has no phases"):
            report.in_phase(phase)


@pytest.mark.parametrize("correct_times", [True, False])
def test_another_phase_is_corrected_as_the_first_one(correct_times):
    """Without functions nothing but the cost of sections is subtracted."""
    builder = Builder().thread(Node(section("data"), 10, 50 * MS), root_ns=50 * MS)
    made = builder.snapshot(
        meta={"own_ns": 10 * MS},
        sections=(builder.stats("data", [5 * MS] * 10),),
        steps=Steps(10, 0, 100 * MS, rows=(StepRow(builder.key(section("data")), 10, 50 * MS),)),
        phases=(PhaseTime("steps", 100 * MS, 1),),
    )
    report = build_report(made, correct_times=correct_times)
    rows = by_name(report.steps.rows)
    assert ("(fastprof)" in rows) == correct_times
    assert rows[UNACCOUNTED].mean_ms == (4 if correct_times else 5)
    assert report.in_phase("all").steps == report.in_phase("all").in_phase("steps").steps
    assert report.in_phase("all").steps == report.steps


def test_a_trainer_that_was_only_imported_runs_nothing():
    trainer = py("fit", 1, "/site-packages/lightning/pytorch/trainer/trainer.py")
    made = run(inside={"forward": [calls(trainer, 1, 1)]})
    assert framework_of(build_report(made)) == "lightning"
    made = run()
    assert framework_of(build_report(replace(made, keys=(*made.keys, trainer)))) == "torch"
