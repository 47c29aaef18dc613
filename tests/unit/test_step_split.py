"""Kinds of time: divided so that they add up, checked when read, shown with their places."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fastprof.capture.split import ORDER, late_gpu_wait, make_split
from fastprof.errors import SnapshotError
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot, StepRow, Steps
from fastprof.snapshot.gpu import GpuLine
from fastprof.snapshot.steps import SplitPlace, StepSeries
from fastprof.tables.report import all_tables
from fastprof.tables.steps import row_name
from hypothesis import given
from hypothesis import strategies as st
from unit.snapshots import MS, Builder, Node, c, gpu, h200, py, section, waits

KINDS = ("data", "communication", "lock", "io", "gpu_wait", "gc")
ns = st.integers(-10, 2**62)
counts = st.integers(0, 12)


def spent(steps=10, **fields):
    kinds = {name: fields.pop(name, 0) for name in KINDS}
    return {
        "kinds": kinds, "places": [], "covered_ns": kinds["data"], "covered_cpu_ns": 0,
        "gc_cpu_ns": kinds["gc"], "cpu_ns": 0, "cpu_steps": steps, "function_steps": steps,
        "delay_ns": 0, "delay_steps": steps,
        "gc_steps": steps, "gpu_steps": steps, "gc_runs": (0, 0, 0), "waits_left_out": 0, **fields,
    }  # fmt: skip


@given(
    st.fixed_dictionaries(dict.fromkeys(KINDS, ns)),
    st.fixed_dictionaries(
        {
            **dict.fromkeys(
                ("covered_ns", "covered_cpu_ns", "gc_cpu_ns", "cpu_ns", "delay_ns"), ns
            ),
            **dict.fromkeys(
                ("cpu_steps", "delay_steps", "function_steps", "gc_steps", "gpu_steps"), counts
            ),
        }
    ),
    st.integers(1, 12),
    st.integers(0, 2**62),
)
def test_whatever_was_measured_the_kinds_add_up(kinds, rest, steps, sum_ns):
    split = make_split({"kinds": kinds, **rest}, steps, sum_ns)
    assert sum(value for _, value in split.rows) == sum_ns
    assert all(value >= 0 for _, value in split.rows)
    names = [name for name, _ in split.rows]
    missing = [sentence.partition(": ")[0] for sentence in split.missing]
    assert sorted(names + missing) == sorted(("compute", *ORDER))


def test_what_is_left_is_computing():
    made = spent(data=200, lock=30, io=20, gc=50, gpu_wait=100, cpu_ns=400, covered_cpu_ns=60)
    split = dict(make_split(made, 10, 1000).rows)
    # Off the CPU for 600: 140 in data and 150 waiting.
    assert split == {"compute": 290, "data": 200, "lock": 30, "io": 20, "gc": 50,
                     "gpu_wait": 100, "communication": 0, "cpu_wait": 0, "other": 310}  # fmt: skip
    assert split["compute"] == 400 - 60 - 50


@pytest.mark.parametrize(("delay_ns", "ready"), [(0, 0), (100, 100), (310, 310), (900, 310)])
def test_being_ready_without_a_cpu_is_part_of_what_else_is_not_known(delay_ns, ready):
    made = spent(data=200, lock=30, cpu_ns=460, delay_ns=delay_ns)
    split = dict(make_split(made, 10, 1000).rows)
    assert (split["cpu_wait"], split["other"]) == (ready, 310 - ready)


def test_a_system_that_does_not_tell_leaves_it_unknown():
    split = make_split(spent(cpu_ns=400, delay_ns=300, delay_steps=9), 10, 1000)
    assert dict(split.rows)["other"] == 600
    assert [m.partition(":")[0] for m in split.missing] == ["data", "cpu_wait"]


def test_what_was_measured_best_comes_first_when_there_is_too_much():
    split = dict(make_split(spent(gc=600, data=300, io=500, lock=50), 1, 1000).rows)
    assert (split["gc"], split["data"], split["lock"], split["io"]) == (600, 300, 50, 50)
    assert split["compute"] == split["other"] == 0


def test_without_steps_or_memory_there_is_no_split():
    assert make_split(spent(), 0, 0).rows == ()
    made = make_split(None, 3, 100)
    assert made.rows == ()
    assert made.missing == ("all: there was no memory to record single steps",)


# ---- in a file ----


def run(**fields):
    builder = Builder()
    wait = Node(
        py("wait", 5, "/usr/lib/python3.12/threading.py"), 1, 0, [Node(c("acquire"), 9, MS)]
    )
    train = Node(py("train", 40, "/x/train.py"), 1, MS, [wait, Node(section("data"), 3, MS)])
    builder.thread(train, root_ns=7)
    data = builder.key(section("data"))
    steps = {
        "count": 5, "skipped": 3, "sum_ns": 10 * MS, "sum_sq": 5e-5, "min_ns": 4 * MS,
        "max_ns": 6 * MS, "recent_ns": (4 * MS, 6 * MS),
        "series": StepSeries(3, (0, 4 * MS), (4 * MS, 6 * MS), ((data, (MS, 0)),),
                             (3 * MS, 2 * MS), (0, 5), (1, 0), (0, 0), (0, MS), 2),
        "split": (("compute", 6 * MS), ("data", 3 * MS), ("lock", MS)),
        "split_missing": ("gc: nobody looked",),
        "split_places": (SplitPlace("lock", 0, 3, 2 * MS), SplitPlace("data", 0, 4, 2 * MS)),
        "gc_runs": (5, 1, 0),
    }  # fmt: skip
    return builder.snapshot(steps=Steps(**{**steps, **fields}))


def test_a_run_with_a_split_is_read_back_exactly():
    snapshot = run()
    assert Snapshot.from_dict(json.loads(json.dumps(snapshot.to_dict()))) == snapshot


def test_without_memory_for_single_steps_there_is_no_split():
    made = run()
    steps = replace(made.steps, series=StepSeries(), split=(), split_places=(), gc_runs=())
    report = build_report(replace(made, steps=steps))
    assert report.steps.split == ()
    assert len(report.steps.series) == 0
    assert not [t for t in all_tables(report) if t.title.startswith("Where a step's time")]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["series"], []),
        (["series", "first"], -1),
        (["series", "wall_ns"], None),
        (["series", "wall_ns"], [1] * 4097),
        (["series", "start_ns"], [1]),
        (["series", "cpu_ns"], [1, -1]),
        (["series", "gc_ns"], [1, 2, 3]),
        (["series", "switches"], "xx"),
        (["series", "faults"], [1.5, 2]),
        (["series", "sections"], None),
        (["series", "sections"], [[0, [1]]]),
        (["series", "sections"], [[99, [1, 2]]]),
        (["series", "sections"], [[0, [1, 2], 3]]),
        (["series", "sections"], [[0, [1, 2]]] * 65),
        (["series", "sections_left_out"], -1),
        (["split"], [["compute", 1]]),
        (["split"], [["compute", 10 * MS], ["compute", 0]]),
        (["split"], [["coffee", 10 * MS]]),
        (["split"], [[["compute"], 10 * MS]]),
        (["split"], [["compute", -1], ["gc", 10 * MS + 1]]),
        (["split"], {}),
        (["split_missing"], [1]),
        (["split_places"], [["lock", 0, 99, 1]]),
        (["split_places"], [["lock", 1, 0, 1]]),
        (["split_places"], [["lock", -1, 0, 1]]),
        (["split_places"], [["coffee", 0, 0, 1]]),
        (["split_places"], [["lock", 0, 0]]),
        (["split_places"], [["lock", 0, 0, 1]] * 8193),
        (["gc_runs"], [1, 2]),
        (["gc_runs"], [1, 2, -3]),
    ],
)
def test_f46_every_field_of_a_split_is_checked(path, value):
    data = json.loads(json.dumps(run().to_dict()))
    part = data["steps"]
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    with pytest.raises(SnapshotError, match=r"^steps\."):
        Snapshot.from_dict(data)


# ---- in a report ----


def test_the_largest_kind_comes_first_with_the_places_of_the_program():
    report = build_report(run())
    assert [row.name for row in report.steps.split] == ["compute", "data", "lock"]
    assert sum(row.total_ns for row in report.steps.split) == report.steps.wall_ns
    data, lock = report.steps.split[1:]
    assert data.places == (("data", 2 * MS),)
    assert data.share == pytest.approx(0.3)
    assert data.mean_ms == pytest.approx(1.5)
    # One place cannot have more time than the whole kind.
    assert lock.places == (("acquire in train train.py:40", MS),)


def test_a_function_that_stands_in_for_another_is_no_place():
    """fastprof's wrapper was the caller if it was installed beside other packages."""
    builder = Builder()
    packages = "/usr/lib/python3.12/site-packages/"
    wrapper = py(
        "wrap.<locals>.call_through", 32, packages + "fastprof/session/patching/wrapping.py"
    )
    step = py("step", 7, packages + "lightning/loop.py")
    builder.thread(Node(step, 1, 0, [Node(wrapper, 1, 0, [Node(c("acquire"), 1, MS)])]))
    steps = Steps(count=1, sum_ns=MS, min_ns=MS, max_ns=MS, recent_ns=(MS,),
                  split=(("lock", MS),), split_places=(SplitPlace("lock", 0, 3, MS),))  # fmt: skip
    (lock,) = build_report(builder.snapshot(steps=steps)).steps.split
    assert lock.places == (("acquire in step loop.py:7", MS),)


def test_waits_for_the_gpu_are_named_by_their_lines():
    line = GpuLine(0, 1, "/x/train.py", 88, "train", 5, 4 * MS)
    snapshot = run(split=(("compute", 2 * MS), ("gpu_wait", 8 * MS)), split_places=())
    made = Snapshot.from_dict({**snapshot.to_dict(), "gpu": gpu(lines=(line,)).to_dict()})
    (waiting, _) = build_report(made).steps.split
    assert waiting.places == (("train train.py:88", 4 * MS),)


@pytest.mark.parametrize(
    ("engine", "cpu_wait", "name", "at_least"),
    [
        # Of 4 and 6 ms, 3 and 4 were off the CPU, and 1 and 2 were not in the engine.
        ((3 * MS, 4 * MS), 0, "off the CPU, mostly in backward", 4 * MS),
        ((3 * MS, 4 * MS), MS, "off the CPU, mostly in backward", 3 * MS),
        ((2 * MS, 3 * MS), 0, "off the CPU for an unknown reason", 2 * MS),
        ((0, 0), 0, "off the CPU for an unknown reason", 0),
    ],
)
def test_time_off_the_cpu_that_must_have_been_in_backward_is_named(
    engine, cpu_wait, name, at_least
):
    """A rank that waited for another one seemed off the CPU for an unknown reason."""
    rest = (("compute", 5 * MS - cpu_wait), ("other", 5 * MS), ("cpu_wait", cpu_wait))
    series = StepSeries(3, (0, 4 * MS), (4 * MS, 6 * MS), (), (MS, 2 * MS), autograd_ns=engine)
    report = build_report(run(series=series, split=rest, split_places=()))
    row = next(row for row in report.steps.split if row.name == "other")
    assert row.places == ((("backward (at least)", at_least),) if at_least else ())
    assert row_name(row) == name


@pytest.mark.parametrize(
    ("wall", "cpu", "at_least"),
    [
        # 5 of 8 ms of backward were off the CPU, of which 1 ms may have been in its functions.
        (80 * MS, 30 * MS, 4 * MS),
        (80 * MS, 80 * MS, 2 * MS),
        (0, 0, 2 * MS),
        (-1, "3", 2 * MS),
        (30 * MS, 80 * MS, 2 * MS),
    ],
)
def test_readings_of_the_cpu_time_in_backward_tell_more_of_it(wall, cpu, at_least):
    rest = (("compute", 5 * MS), ("other", 5 * MS))
    engine = (3 * MS, 4 * MS)
    series = StepSeries(3, (0, 4 * MS), (4 * MS, 6 * MS), (), (2 * MS, 3 * MS), autograd_ns=engine)
    made = run(series=series, split=rest, split_places=())
    key = len(made.keys)
    rows = (StepRow(key, 2, 8 * MS),)
    made = replace(
        made,
        keys=(*made.keys, section("backward")),
        steps=replace(made.steps, rows=rows),
        meta={**made.meta, "backward_ns": wall, "backward_cpu_ns": cpu},
    )
    row = next(row for row in build_report(made).steps.split if row.name == "other")
    assert dict(row.places) == {"backward (at least)": at_least}


def test_the_table_says_what_is_not_known():
    (table,) = [
        t for t in all_tables(build_report(run())) if t.title.startswith("Where a step's time")
    ]
    assert [row[0] for row in table.rows] == [
        "computing on the host", "loading data", "waiting for a lock", "step",
        "garbage collection",
    ]  # fmt: skip
    assert table.rows[-1][1:] == ("n/a", "n/a", "n/a", "nobody looked")
    assert table.rows[2][4] == "acquire in train train.py:40 1.00 ms"


def test_sections_of_one_name_are_one_column_in_the_report():
    builder = Builder()
    builder.thread(root_ns=1)
    one = builder.key(section("a"))
    builder.keys.append(section("a"))
    snapshot = builder.snapshot(
        steps=Steps(2, 0, 3, 0.0, 1, 2, (1, 2), series=StepSeries(
            0, (0, 1), (1, 2), ((one, (10, 0)), (one + 1, (5, 7)))))
    )  # fmt: skip
    view = build_report(snapshot).steps.series
    assert view.names == {"a": pytest.approx((15e-6, 7e-6))}
    assert view.cpu_ms == ()


def _late(places=(), name="data", **fields):
    """Rows: 1 backward, 2 barrier in it, 3 data, 4 item in it, 5 item; each waits for 10 ms.

    ``name``: that of section 3.
    """
    built = (
        Builder()
        .thread(
            Node(section("backward"), 1, 0, (Node(c("barrier"), 1, 0),)),
            Node(section(name), 1, 0, (Node(c("item"), 1, 0),)),
            Node(c("item"), 1, 0),
        )
        .snapshot()
    )
    nodes = replace(built.threads[0].nodes, phase=(0,) * 6)
    host = tuple(waits((0, row), syncs=1, blocked_ns=10 * MS) for row in (1, 2, 4, 5))
    device = h200(step_count=fields.pop("seen", 10))
    made = {"tier": "external", "host": host, "devices": (device,), **fields}
    steps = Steps(count=12, skipped=2, sum_ns=1000 * MS)
    return late_gpu_wait(gpu(**made), nodes, 0, built.keys, steps, places)


def test_late_waits_for_the_gpu_leave_out_what_counts_elsewhere():
    assert _late() == 30 * MS  # not that in data
    assert _late(places=[("communication", 0, 2, 10 * MS)]) == 20 * MS


@pytest.mark.parametrize("name", ["data", "data_loading", "synchronization"])
def test_late_waits_leave_out_every_section_of_one_kind(name):
    assert _late(name=name) == 30 * MS
    assert _late(name=f"{name} of another kind") == 40 * MS


@pytest.mark.parametrize(
    "fields",
    [
        {"tier": "callbacks"},
        {"seen": 9},
        {"paused_ns": 60 * MS},
        {"counters": {"cupti_errors": 1}},
    ],
)
def test_late_waits_are_unknown_unless_the_steps_were_observed(fields):
    assert _late(**fields) is None
