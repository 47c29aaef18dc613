"""Loaders in the report, on hand-made snapshots."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from fastprof.errors import SnapshotError
from fastprof.read import fprof
from fastprof.read.limits import Limits
from fastprof.report.figures import duration
from fastprof.report.loaders import loader_rows, worker_advice
from fastprof.report.loaders_compared import compared
from fastprof.report.loading_cost import unhooked_parts
from fastprof.report.rows import StepSection
from fastprof.results.report import build_report
from fastprof.snapshot import (
    LoaderStats,
    NodeTable,
    Snapshot,
    StepRow,
    Steps,
    ThreadTree,
)
from fastprof.snapshot.codec import read
from fastprof.snapshot.loaders import LoadTime, WorkerStats
from fastprof.tables.layout import table_lines
from fastprof.tables.loaders import loader_tables
from unit.snapshots import MS, ROOT, Node, cost, py, section, tree

BATCHES = 100
STEP_MS = 30


def workers(count: int = 4, load_ms: int = 180, **changes) -> WorkerStats:
    """Return workers of a loop that waits for nine of ten batches."""
    values = {
        "prefetch": 2,
        "batch_size": 8,
        "start_method": "fork",
        "cpus": 64,
        "ready": 10,
        "blocked": 89,
        "blocked_ns": 89 * 15 * MS,
        "depth": (89, 10, 0, 0, 0, 0, 0, 0),
        "loads": tuple(LoadTime(w, 25, 25 * load_ms * MS, 2 * load_ms * MS) for w in range(count)),
        "starts": (2, 80 * MS),
        "firsts": (2, 500 * MS),
        "shutdowns": (2, 20 * MS),
        "processes": 2 * count,
    }
    return WorkerStats(count, **{**values, **changes})


def test_times_are_those_of_plain_steps_where_these_are_shown() -> None:
    made = run(None)
    (loader,) = made.loaders
    plain = replace(loader, plain={"data": (BATCHES // 2, 5 * MS * (BATCHES // 2))})
    made = replace(made, loaders=(plain,))
    assert [row.data_ms for row in loader_rows(made)] == [15]  # few steps were plain
    made = replace(made, plain_steps=made.steps, meta={"overhead_budget": 0.01})
    assert [row.data_ms for row in loader_rows(made)] == [5]


def test_sections_that_were_off_in_plain_steps_have_the_time_of_their_row() -> None:
    """Forward was 9.82 ms in the table of a step and 11.9 in that of loaders."""
    made, hooked, plain = run(None), BATCHES // 10, BATCHES - BATCHES // 10

    def stats(name: str, forward_ms: int, **changes) -> LoaderStats:
        return LoaderStats(
            name, "train", BATCHES,
            # Two sections in a batch; in plain steps those of a few batches, which took longer.
            {"data": (BATCHES, BATCHES * MS), "forward": (2 * hooked + 8, forward_ms * MS)},
            plain={"data": (plain, plain * MS), "forward": (8, 400 * MS)}, **changes,
        )  # fmt: skip

    rows = (
        StepSection("data", plain, 2 * plain * MS, 2.0, 0.2),
        StepSection("forward", None, 8 * plain * MS, 8.0, 0.8),
    )
    table = replace(build_report(made).steps, rows=rows)
    for loaders, means in (
        ((stats("main", 500),), [4.0]),
        ((stats("main", 600), stats("other", 200)), [3.0, 1.0]),
    ):
        found = loader_rows(
            replace(made, loaders=loaders, plain_steps=made.steps, meta={"overhead_budget": 0.01}),
            table,
        )
        assert [row.forward_ms for row in found] == pytest.approx(means, rel=0.01)
        assert [row.data_ms for row in found] == [1.0] * len(found)


def run(stats: WorkerStats | None, batches: int = BATCHES, step_ms: int = STEP_MS, **changes):
    """Return a snapshot of a loop whose step takes ``step_ms`` besides 15 ms of data."""
    loader = LoaderStats(
        "main", "train", batches, {"data": (batches, 15 * MS * batches)}, workers=stats
    )
    steps = Steps(
        count=BATCHES,
        sum_ns=BATCHES * (step_ms + 15) * MS,
        min_ns=MS,
        max_ns=MS,
        rows=(StepRow(1, BATCHES, BATCHES * 15 * MS),),
    )
    return Snapshot(
        meta={},
        duration_ns=steps.sum_ns,
        keys=(ROOT, section("data")),
        threads=(ThreadTree(1, "MainThread", False, NodeTable((-1,), (0,), (0,), (0,), (0,))),),
        steps=steps,
        loaders=(replace(loader, **changes),),
    )


def row(snapshot: Snapshot):
    return build_report(snapshot).loaders[0].workers


def test_s4_17_four_workers_of_180_ms_against_30_ms_need_six() -> None:
    report = build_report(run(workers()))
    loader = report.loaders[0].workers
    assert (loader.load_ms, loader.step_ms, loader.needed) == (180.0, 30.0, 6)
    sentence = "main: 4 workers x 180 ms per batch against a 30.0 ms step: you need 6."
    assert loader.advice == sentence
    assert sentence in report.to_text(full=True)
    assert json.loads(report.to_json())["loaders"][0]["workers"]["needed"] == 6


@pytest.mark.parametrize(
    ("load_ms", "step_ms", "needed"), [(180, 29, 7), (181, 30, 7), (5, 30, 1), (31, 30, 2)]
)
def test_s2_07_workers_needed_is_load_time_over_step_rounded_up(load_ms, step_ms, needed) -> None:
    assert row(run(workers(load_ms=load_ms), step_ms=step_ms)).needed == needed


def test_several_batches_per_step_share_its_time() -> None:
    # Accumulation of 2: a batch every 15 ms.
    assert row(run(workers(), batches=2 * BATCHES)).needed == 12


def test_s1_08_without_enough_samples_there_is_no_advice() -> None:
    few = row(run(workers(loads=(LoadTime(0, 19, 19 * 180 * MS, MS),))))
    assert few.needed is None
    assert few.advice == ""
    assert row(run(workers(), batches=19)).needed is None


def test_a_loop_that_does_not_wait_gets_no_advice() -> None:
    ready = row(run(workers(ready=80, blocked=19)))
    assert ready.needed == 6
    assert ready.advice == ""


def test_a_validation_loader_or_a_run_without_steps_gets_no_advice() -> None:
    assert row(run(workers(), split="val")).needed is None
    assert row(replace(run(workers()), steps=Steps())).step_ms is None
    # More loading than time: an invalid file.
    assert row(run(workers(), step_ms=-1)).step_ms is None


def test_a_loop_that_waits_despite_enough_workers_gets_advice_on_long_loads() -> None:
    loader = row(run(workers(load_ms=90)))
    assert loader.needed == 3
    assert "load times vary (up to 180 ms)" in loader.advice
    assert "you need" not in loader.advice


def test_more_workers_than_cpus_are_not_advised_without_a_warning() -> None:
    advice = row(run(workers(cpus=2))).advice
    assert "you need 6" in advice
    assert "may use 2 CPUs" in advice


def test_a_loop_that_loads_itself_learns_how_many_workers_would_hide_it() -> None:
    none = workers(0, loads=(), ready=0, blocked=0, depth=(0,) * 8, start_method=None)
    loader = row(run(none))
    assert (loader.load_ms, loader.needed, loader.blocked_share) == (15.0, 1, None)
    assert "1 worker could load them meanwhile" in loader.advice
    assert "meanwhile if a CPU is free." in loader.advice  # whether one is, the finding says
    assert row(run(none, step_ms=1000)).advice == ""  # 1.5 % of a step


def test_a_batch_that_only_the_hook_makes_long_needs_no_worker() -> None:
    none = workers(0, loads=(), ready=0, blocked=0, depth=(0,) * 8, start_method=None)
    loader = row(run(none))
    # The same figure as in the finding and in the table beside it, and what it comes from.
    said = worker_advice("main", loader, 0.6, 1.0)
    assert f"{duration(loader.load_ms)} per batch" in said
    assert f"(9.00 ms and {duration(loader.step_ms)} without what recording" in said
    # How much slower bytecode was is not known: so is how much remains.
    assert "(at least 9.00 ms and " in worker_advice("main", loader, 0.6, 1.0, least=True)
    assert worker_advice("main", replace(loader, load_ms=1.5), 0.6, 1.0) == ""
    assert worker_advice("main", replace(loader, step_ms=100.0), 0.6, 1.0) == ""


def test_costs_outside_the_step_are_a_table() -> None:
    report = build_report(run(workers(resumes=(1, 7 * MS), died=3, profiled=2)))
    loader = report.loaders[0].workers
    assert (loader.start_ms, loader.resume_ms, loader.first_ms, loader.shutdown_ms) == (
        40.0,
        7.0,
        250.0,
        10.0,
    )
    assert loader.outside_ms == 607.0
    text = report.to_text(full=True)
    assert "Cost of the loaders outside the steps" in text
    assert "Worker processes of main that died: 3." in text
    assert "recorded in 2 of 8 worker processes of main" in text


def test_loaders_of_one_name_are_distinguished_by_their_split() -> None:
    made = run(workers())
    (train,) = made.loaders
    report = build_report(replace(made, loaders=(train, replace(train, split="val", batches=7))))
    tables = loader_tables(report)
    for split in ("val", "train"):
        named = [sum(row[1] == split for row in table.rows) for table in tables]
        assert named == [1, 1, 4, 1]


def test_depths_are_named_by_their_range() -> None:
    loader = row(run(workers(depth=(1, 2, 3, 4, 0, 0, 0, 5))))
    assert loader.depth == ((0, 1), (1, 2), (2, 3), (4, 4), (64, 5))
    assert "2-3: 20.0" in build_report(run(workers(depth=(1, 2, 3, 4, 0, 0, 0, 5)))).to_text(
        full=True
    )


@pytest.mark.parametrize("name", ["main", "a_loader_with_quite_a_long_name"])
def test_each_table_of_the_loaders_is_one_table_at_80_columns(name: str) -> None:
    """A table in two parts is hard to read: columns that matter little make room."""
    stats = workers(
        resumes=(3, 2 * MS), firsts=(5, MS), shutdowns=(2, 3 * MS), depth=tuple(range(8)),
    )  # fmt: skip
    made = run(stats)
    one = replace(made.loaders[0], name=name, weight=0.5, phases=dict.fromkeys(
        ("data", "forward", "backward", "optimizer", "batch_wait"), (BATCHES, BATCHES * MS * 100)
    ))  # fmt: skip
    report = build_report(replace(made, loaders=(one, replace(one, name=f"{name}2"))))
    for table, kept in zip(
        loader_tables(report),
        ({"data ms", "forward ms", "backward ms"}, {"workers", "ready", "blocked", "load ms",
         "step ms", "needed"}, {"load ms"}, {"start ms", "first batch ms", "total ms"}),
        strict=True,
    ):  # fmt: skip
        lines = table_lines(table, 80)
        assert "" not in lines, table.title
        assert max(map(len, lines)) <= 80
        assert kept <= {header.strip() for header in lines[0].split("  ")}


def test_a_loader_of_another_kind_has_no_such_rows() -> None:
    report = build_report(run(None))
    assert report.loaders[0].workers is None
    assert "Workers of the loaders" not in report.to_text(full=True)


def with_worker_tree(snapshot: Snapshot, name: str = "(workers of main)") -> Snapshot:
    tree = NodeTable((-1, 0), (0, 2), (0, 7), (0, 0), (0, 5000 * MS))
    return replace(
        snapshot,
        keys=(*snapshot.keys, py("__getitem__")),
        worker_threads=(ThreadTree(0, name, True, tree),),
    )


def test_f20_worker_functions_are_kept_apart_from_the_process_itself() -> None:
    report = build_report(with_worker_tree(run(workers())))
    assert [f.name for t in report.worker_functions for f in t.functions] == ["__getitem__"]
    assert report.functions == ()
    assert len(report.threads) == 1
    text = report.to_text(full=True)
    assert "Functions in other processes: (workers of main) (1 of 1)" in text
    assert "none of its figures includes their time" in text


def test_names_of_worker_trees_stand_for_themselves() -> None:
    assert "{0} {x" in build_report(with_worker_tree(run(workers()), "{0} {x")).to_text(full=True)


def saved(snapshot: Snapshot) -> bytes:
    stream = io.BytesIO()
    fprof.write_snapshot(snapshot, stream)
    return stream.getvalue()


def test_workers_survive_saving() -> None:
    snapshot = with_worker_tree(run(workers()))
    assert fprof.parse(saved(snapshot), Limits()) == snapshot


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", -1),
        ("workers", 10**9),
        ("depth", [1, 2]),
        ("loads", [[0, 1, 2]]),
        ("starts", [1]),
        ("measured", 1),
        ("prefetch", "two"),
        ("start_method", 5),
        ("blocked_ns", None),
    ],
)
def test_f46_wrong_values_in_a_saved_loader_are_refused(name: str, value: object) -> None:
    data = run(workers()).to_dict()
    data["loaders"][0]["workers"][name] = value
    with pytest.raises(SnapshotError, match=rf"loaders\[0\]\.workers\.{name}"):
        Snapshot.from_dict(data)


def test_times_of_receiving_survive_saving() -> None:
    timed = replace(workers(), ready_ns=5, caught_up=(2, 9))
    assert read(WorkerStats, timed.to_dict(), "workers") == timed


@pytest.mark.parametrize("inside", [True, False])
def test_f47_a_hook_that_cost_all_there_was_breaks_no_report(inside: bool) -> None:
    """Calibrated costs may exceed the time of the functions beside the loading."""
    small = Node(py("small", 1), 1000, 1 * MS)
    data = Node(section("data"), 40, 600 * MS, [small] if inside else [])
    made = tree(data, *([] if inside else [small]), calibration=cost(python=(5000, 5000)))
    none = workers(0, loads=(), ready=0, blocked=0, depth=(0,) * 8, start_method=None)
    snapshot = replace(
        run(none), keys=made.keys, threads=made.threads, calibration=made.calibration
    )
    report = build_report(snapshot)
    assert report.loaders[0].workers.needed == 1
    assert "failed" not in report.to_text(full=True)


@pytest.mark.parametrize("slowdown", [1.0, 1.5])
def test_what_remains_without_slower_bytecode_is_said_to_be_the_least(slowdown: float) -> None:
    small = Node(py("small", 1), 1000, 300 * MS)
    costs = replace(cost(python=(100_000, 0)), slowdown=slowdown)
    made = tree(Node(section("data"), 40, 300 * MS, [small]), calibration=costs)
    none = workers(0, loads=(), ready=0, blocked=0, depth=(0,) * 8, start_method=None)
    report = build_report(
        replace(run(none), keys=made.keys, threads=made.threads, calibration=made.calibration)
    )
    advice = report.loaders[0].workers.advice
    assert "without what recording functions costs" in advice
    assert ("(at least " in advice) == (slowdown > 1)


def test_time_of_frames_from_before_the_recording_is_time_beside_loading() -> None:
    small = Node(py("small", 1), 1000, 10 * MS)
    data = Node(section("data"), 40, 600 * MS)
    costs = cost(python=(9000, 0))
    made = tree(data, small, root_ns=90 * MS, calibration=costs)
    assert unhooked_parts(made)[1] == pytest.approx(91 / 100)


def test_the_work_between_batches_is_the_step_of_a_loader() -> None:
    loader = row(run(workers(between=(90, 90 * 60 * MS))))
    assert (loader.step_ms, loader.needed) == (60.0, 3)
    # Nothing was measured between its batches, or they were read at once.
    for between in ((0, 0), (90, 90 * MS // 100)):
        loader = row(run(workers(between=between)))
        assert (loader.step_ms, loader.needed, loader.advice) == (None, None, "")


def test_stages_keep_only_training_loaders_apart() -> None:
    """A validation loader may have the name of a training loader."""
    for split in ("val", "train"):
        loaders = tuple(
            LoaderStats(f"loader{i}", split, 100, {"forward": (100, (1 + 9 * i) * 100 * MS)})
            for i in range(2)
        )
        rows = loader_rows(replace(run(None), loaders=loaders))
        assert compared(rows)
        apart = compared(rows, {"loader0", "loader1"})
        assert apart == (compared(rows) if split == "val" else [])
