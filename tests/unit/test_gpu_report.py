"""The GPU in a report: rows that add up, devices, kernels, waits, memory."""

from __future__ import annotations

import dataclasses
import json
from unittest import mock

import pytest
from fastprof.report import model_gpu
from fastprof.report.gpu_tree import Sums
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot
from fastprof.snapshot.gpu import (
    COPY_H2D,
    HOW_CAPTURED,
    HOW_INHERITED,
    HOW_OTHER,
    HOW_OWN,
    HOW_UNKNOWN,
    OTHER_KERNELS,
    GpuSnapshot,
)
from fastprof.snapshot.memory import MemorySample, MemorySection
from fastprof.snapshot.run_phases import PhaseTime
from hypothesis import given
from hypothesis import strategies as st
from unit.gpu_runs import ADD, BACKWARD, FLASH, GEMM, NCCL, RUN_BACKWARD, SGEMM, gpu_training_run
from unit.snapshots import (
    MIB,
    MS,
    NOWHERE,
    Builder,
    Node,
    activity,
    c,
    gpu,
    h200,
    kernel,
    memory,
    py,
    replaced,
    section,
    timeline,
    tree,
    waits,
)


@pytest.fixture(scope="module")
def report():
    return build_report(gpu_training_run())


def function(report, qualname):
    (row,) = [r for r in report.functions if r.qualname == qualname]
    return row


# ---- sections and functions ----


def test_a_section_has_the_work_it_launched(report):
    forward = report.section("forward")
    assert (forward.gpu_ms, forward.gpu_self_ms, forward.kernels) == (441, 441, 2420)
    assert (forward.blocked_ms, forward.gpu.syncs) == (400, 10)
    assert (forward.gpu.d2h_bytes, forward.gpu.h2d_bytes) == (40, 0)
    assert forward.gpu.delay_ms == pytest.approx(485 / 2430)
    data = report.section("data")
    assert (data.gpu_ms, data.kernels, data.gpu.h2d_bytes) == (30, 0, 640 * MIB)
    assert (data.gpu.copy_ns, data.gpu.transfer_ns, data.gpu.delay_ms) == (30 * MS, 30 * MS, None)
    optimizer = report.section("optimizer").gpu
    assert (optimizer.memset_bytes, optimizer.replayed_ns) == (4096, 20 * MS)


def test_backward_has_what_autograd_s_threads_launched_for_it(report):
    backward = report.section("backward")
    assert (backward.gpu_ms, backward.gpu.inherited_ns, backward.kernels) == (260, 260 * MS, 710)
    assert backward.blocked_ms == 2
    assert report.section("forward").gpu.inherited_ns == 0


def test_a_function_has_what_it_launched_and_what_is_below_it(report):
    train = function(report, "train")
    assert (train.gpu_ms, train.gpu_self_ms) == (756, 55)
    assert function(report, "Model.forward").gpu_ms == 440
    run_backward = function(report, "run_backward")
    assert (run_backward.gpu_ms, run_backward.gpu_self_ms) == (260, 250)
    own = function(report, "Scale.backward")
    assert (own.gpu_ms, own.gpu_self_ms, own.kernels) == (10, 10, 500)


def test_threads_tables_have_the_gpu_too(report):
    main, autograd = report.threads
    assert by_qualname(main.functions)["train"].gpu_ms == 756
    assert by_qualname(autograd.functions)["Scale.backward"].gpu_ms == 10


def by_qualname(rows):
    return {row.qualname: row for row in rows}


def test_functions_in_a_section_add_up_to_its_gpu_time(report):
    for name in ("data", "forward", "backward", "optimizer"):
        rows = report.functions_in(name)
        assert sum(r.gpu.self_ns for r in rows) == report.section(name).gpu.gpu_ns
    rows = by_qualname(report.functions_in("backward"))
    assert rows["run_backward"].gpu_self_ms == 260  # it waited for Scale.backward


def test_recursion_does_not_count_gpu_time_twice():
    fib = Node(py("fib"), 2, 1, [Node(section("s"), 1, 1, [Node(py("fib"), 1, 1)])])
    builder = Builder().thread(Node(section("s"), 1, 1, [fib]))
    snapshot = builder.snapshot(
        sections=(builder.stats("s", [4]),),
        gpu=gpu(activity(COPY_H2D, 7, (0, 4), size=5), activity(COPY_H2D, 2, (0, 2))),
    )
    report = build_report(snapshot)
    (row,) = report.functions
    assert (row.gpu.gpu_ns, row.gpu.self_ns, row.gpu.h2d_bytes) == (9, 9, 5)
    assert (report.section("s").gpu.gpu_ns, report.section("s").gpu.self_ns) == (9, 9)


def test_a_function_on_both_paths_of_inherited_work_counts_it_once():
    builder = Builder().thread(Node(py("call"), 1, 1, [Node(c("backward"), 1, 1)]))
    builder.thread(Node(py("call"), 1, 1, [Node(py("op"), 1, 1)]), ident=2)
    inherited = activity(COPY_H2D, 7, (1, 2), how=HOW_INHERITED, via=(0, 2))
    rows = by_qualname(build_report(builder.snapshot(gpu=gpu(inherited))).functions)
    assert {name: (r.gpu.gpu_ns, r.gpu.self_ns) for name, r in rows.items()} == {
        "call": (7, 0), "backward": (7, 0), "op": (7, 7),
    }  # fmt: skip


def test_gpu_figures_of_a_run_without_gpu_are_unknown_and_not_zero():
    without = replaced(gpu_training_run(), gpu=None, memory=None)
    off = replaced(without, gpu=GpuSnapshot("off", "There is no CUDA driver."))
    for snapshot in (without, off):
        report = build_report(snapshot)
        for row in (*report.sections, *report.functions, *report.threads[0].functions):
            assert row.gpu is None
            figures = {row.gpu_ms, row.gpu_self_ms, row.kernels, row.blocked_ms}
            assert figures == {None}
        assert (report.kernels, report.memory) == ((), None)
        assert report.kernels_in("forward") == ()
    assert build_report(without).gpu is None
    assert build_report(off).gpu.reason == "There is no CUDA driver."
    assert build_report(off).gpu.utilization is None


def test_a_row_that_launched_nothing_has_zeros(report):
    row = build_report(tree(Node(py("f"), 1, 5), gpu=gpu())).functions[0]
    assert (row.gpu_ms, row.kernels, row.blocked_ms, row.gpu.delay_ms) == (0, 0, 0, None)


# ---- accounting ----


def random_runs():
    """Draw trees of three threads, and activities of any site, kind and attribution."""
    names = st.sampled_from([py("f"), py("g"), c("h"), section("s"), section("t")])
    shape = st.lists(st.tuples(st.integers(0, 30), names), max_size=12)
    spot = st.tuples(st.integers(-1, 2), st.integers(0, 12))
    row = st.tuples(
        spot, spot, st.integers(0, 4), st.integers(-8, 1), st.integers(0, 2**50), st.booleans()
    )
    return st.tuples(st.lists(shape, min_size=1, max_size=3), st.lists(row, max_size=12))


def made_run(shapes, rows):
    builder = Builder()
    for ident, shape in enumerate(shapes, 1):
        nodes = [Node(py("unused"))]
        tops = []
        for above, key in shape:
            node = Node(key)
            at = above % (len(nodes) + 1)
            if at == 0 or nodes[at - 1].key == py("unused"):
                tops.append(node)
            else:
                nodes[at - 1].children = [*nodes[at - 1].children, node]
            nodes.append(node)
        builder.thread(*tops, ident=ident)
    sizes = [len(t.nodes) for t in builder.threads]

    def site(spot):
        thread, node = spot
        return (thread, node % sizes[thread]) if 0 <= thread < len(sizes) else NOWHERE

    activities = [
        activity(what, ns, site(a), how=how, via=site(b), count=3, size=7)
        for a, b, how, what, ns, _ in rows
    ]
    hosts = [
        waits(site(a), how=how, via=site(b), launches=1, syncs=1, blocked_ns=ns)
        for a, b, how, _, ns, blocked in rows
        if blocked
    ]
    layer = gpu(*activities, host=tuple(hosts), kernels=(kernel("a", 5), kernel("b", 6)))
    stats = [builder.stats(name, [5]) for name in ("s", "t") if section(name) in builder.keys]
    return builder.snapshot(gpu=layer, sections=tuple(stats))


def path(snapshot, site):
    """Return the keys from a site up to the root, by the parents alone."""
    thread, node = site
    found = []
    while thread >= 0 and node > 0:
        nodes = snapshot.threads[thread].nodes
        found.append(snapshot.keys[nodes.key[node]])
        node = nodes.parent[node]
    return found


def paths_of(snapshot, row):
    """Return the path of an activity, innermost first; None: it belongs to no known thread."""
    site, via = (row.thread, row.node), (row.via_thread, row.via_node)
    if row.how in (HOW_OTHER, HOW_UNKNOWN) or (site == NOWHERE and row.how != HOW_INHERITED):
        return None
    if row.how == HOW_INHERITED:
        if site == via == NOWHERE:
            return None
        return [*path(snapshot, site), *path(snapshot, via)]
    return path(snapshot, site)


def report_of_all_seen(snapshot):
    """Return the report, with GPU time in its rows however much of it has no launch."""
    with mock.patch.object(model_gpu, "UNSEEN", 1.0):
        return build_report(snapshot)


@given(random_runs())
def test_s1_12_every_activity_is_counted_once_and_all_of_them_add_up(run):
    snapshot = made_run(*run)
    Snapshot.from_dict(json.loads(json.dumps(snapshot.to_dict())))
    report = report_of_all_seen(snapshot)
    totals = report.gpu.totals
    nobody = totals.other_threads_ns + totals.unattributed_ns
    assert totals.sections_ns + totals.outside_ns + nobody == snapshot.gpu.sum_ns == totals.gpu_ns
    assert sum(r.gpu.self_ns for r in report.sections) == totals.sections_ns
    in_functions = no_function = 0
    for row in snapshot.gpu.activity:
        keys = paths_of(snapshot, row)
        if keys is None:
            continue
        if any(k.kind in ("python", "c") for k in keys):
            in_functions += row.sum_ns
        else:
            no_function += row.sum_ns
    assert sum(r.gpu.self_ns for r in report.functions) == in_functions
    assert in_functions + no_function + nobody == snapshot.gpu.sum_ns
    assert report.gpu.use.gpu_ns == snapshot.gpu.sum_ns
    for use in [r.gpu for r in (*report.sections, *report.functions)]:
        assert use.gpu_ns == use.kernel_ns + use.copy_ns + use.memset_ns


@given(random_runs())
def test_every_row_is_what_following_the_parents_gives(run):
    snapshot = made_run(*run)
    report = report_of_all_seen(snapshot)
    expected = {}
    own = {}
    for row in snapshot.gpu.activity:
        keys = paths_of(snapshot, row) or []
        sections = [k for k in keys if k.kind == "section"]
        # Search a section at the launching thread's place first, then at the owner's.
        functions = [k for k in keys if k.kind != "section"]
        for kind in (sections, functions):
            for key in {*kind}:
                expected[key] = expected.get(key, 0) + row.sum_ns
            if kind:
                own[kind[0]] = own.get(kind[0], 0) + row.sum_ns
    for row in report.sections:
        key = section(row.name)
        assert (row.gpu.gpu_ns, row.gpu.self_ns) == (expected.get(key, 0), own.get(key, 0))
    for row in report.functions:
        (key,) = [k for k in snapshot.keys if (k.qualname, k.kind) == (row.qualname, row.kind)]
        assert (row.gpu.gpu_ns, row.gpu.self_ns) == (expected.get(key, 0), own.get(key, 0))


def test_a_deep_tree_with_work_at_every_node_is_walked_once():
    n = 30_000
    node = Node(py("f"), 1, 1)
    for i in range(n - 1):
        node = Node(py("f" if i % 2 else "g"), 1, 1, [node])
    builder = Builder().thread(node)
    work = tuple(activity(COPY_H2D, 1, (0, i), size=1) for i in range(1, n + 1))
    rows = by_qualname(build_report(builder.snapshot(gpu=gpu(*work))).functions)
    outermost = max(r.gpu.gpu_ns for r in rows.values())
    assert (outermost, sum(r.gpu.self_ns for r in rows.values())) == (n, n)


# ---- devices ----


def test_s1_01_utilization_is_busy_time_of_the_measured_steps(report):
    (device,) = report.gpu.devices
    assert (device.name, device.capability, device.step_count) == ("NVIDIA H200", "9.0", 7)
    assert report.gpu.utilization == device.utilization == device.steps.utilization == 0.75
    assert device.whole.utilization == 0.7
    assert (report.steps.mean_ms, report.steps.cv) == (100, 0)
    assert report.memory.share == 0.6


def test_s1_01_without_a_gpu_the_text_says_n_a_and_not_0():
    off = replaced(gpu_training_run(), gpu=GpuSnapshot("off", "no CUDA driver"), memory=None)
    lines = [line for line in str(build_report(off)).splitlines() if "GPU" in line]
    assert lines[0] == "GPU: n/a, because no CUDA driver."
    assert all(line.endswith("n/a") for line in lines[1:])
    data = json.loads(build_report(off).to_json())
    assert (data["gpu"]["utilization"], data["memory"]) == (None, None)


@pytest.mark.parametrize("busy", [85, 75, 65, 45])
def test_utilization_is_shown_in_percent(busy):
    device = h200(whole=timeline(busy * MS, (-1, (100 - busy) * MS)))
    report = build_report(tree(Node(py("f"), 1, 5), gpu=gpu(devices=(device,))))
    assert report.gpu.utilization == busy / 100
    assert f"busy {busy}.0 % of the recording" in str(report)


def test_s1_15_idle_time_is_split_by_what_the_host_was_doing(report):
    steps = report.gpu.devices[0].steps
    assert (steps.idle_ns, steps.idle_data_ns, steps.idle_data_share) == (175 * MS, 140 * MS, 0.2)
    assert [(row.section, row.idle_ns // MS) for row in steps.idle] == [
        ("data", 140), ("(no section)", 25), ("forward", 10),
    ]  # fmt: skip
    assert steps.idle_ns + steps.busy_ns == steps.wall_ns
    assert (steps.copy_share, steps.overlap) == (0.03, 0.4)


def test_s1_15_the_report_says_where_transfers_and_cuda_malloc_happen(report):
    assert report.gpu.use.transfer_ns == 31 * MS
    assert report.section("data").gpu.transfer_ns == 30 * MS
    assert (report.memory.device_allocs_per_step, report.memory.device_frees_per_step) == (4, 2)
    assert report.memory.retries == 1


def test_s1_15_calls_per_step_are_over_steps_and_not_over_samples():
    sampled = memory(steps=3, device_allocs=40, sum_peak_allocated=30, peaks_reset=True)
    report = build_report(replaced(gpu_training_run(), memory=sampled))
    assert report.memory.device_allocs_per_step == 4
    assert (report.memory.mean_peak_allocated, report.memory.sample_count) == (10, 3)
    without_steps = build_report(Snapshot(meta={}, duration_ns=0, memory=sampled)).memory
    assert without_steps.device_allocs_per_step is None


def test_without_measured_steps_a_device_has_its_whole_time_only():
    device = h200(whole=timeline(30, (-1, 70)))
    row = build_report(tree(Node(py("f"), 1, 5), gpu=gpu(devices=(device,)))).gpu.devices[0]
    assert (row.steps, row.utilization, row.whole.overlap) == (None, 0.3, None)


def test_s1_22_devices_that_this_process_does_not_use_are_no_idle_ones():
    used = h200(index=3, whole=timeline(90, (-1, 10)), steps=timeline(9, (-1, 1)), step_count=1)
    others = [
        h200(index=i, whole=timeline(0, (-1, 100)), steps=timeline(0, (-1, 10)), step_count=1)
        for i in (0, 1, 2, 4)
    ]
    devices = (*others[:3], used, others[3])
    report = build_report(tree(Node(py("f")), gpu=gpu(devices=devices)))
    assert [device.index for device in report.gpu.devices] == [3]
    assert report.gpu.utilization == 0.9
    none = build_report(tree(Node(py("f")), gpu=gpu(devices=tuple(others))))
    assert [device.index for device in none.gpu.devices] == [0, 1, 2, 4]


def test_utilization_over_several_devices_is_of_their_time_together():
    devices = (
        h200(whole=timeline(30, (-1, 70))),
        h200(index=1, whole=timeline(90, (-1, 10))),
    )
    assert build_report(tree(Node(py("f")), gpu=gpu(devices=devices))).gpu.utilization == 0.6


# ---- waits and graphs ----


def test_lines_that_block_stand_by_time_with_what_they_cost_per_step(report):
    first, second = report.gpu.lines
    assert first.text == "train at train.py:88 blocks 36.0 ms per step"
    assert (first.syncs, first.blocked_ns, first.section) == (9, 360 * MS, "forward")
    assert (second.function, second.section) == ("Scale.backward", "backward")
    without_steps = replaced(gpu_training_run(), steps=type(gpu_training_run().steps)())
    line = build_report(without_steps).gpu.lines[0]
    assert line.text == "train at train.py:88 blocks 360 ms"


def test_work_of_graphs_counts_where_it_was_replayed_and_names_where_it_was_captured(report):
    (row,) = report.gpu.captured
    assert (row.replayed_in, row.captured_in) == ("optimizer / train", "forward / Model.forward")
    assert (row.kernels, row.gpu_ns) == (100, 20 * MS)
    assert report.gpu.totals.replayed_ns == 20 * MS


def test_totals_say_what_is_in_no_row(report):
    totals = report.gpu.totals
    assert totals.gpu_ns == 765 * MS
    assert (totals.sections_ns, totals.outside_ns) == (753 * MS, 3 * MS)
    assert (totals.other_threads_ns, totals.other_threads_count) == (4 * MS, 4)
    assert (totals.unattributed_ns, totals.unattributed_count) == (5 * MS, 5)
    assert totals.inherited_ns == 260 * MS
    assert report.gpu.delay_max_ns == MS


# ---- kernels ----


def test_s1_12_one_row_per_kernel_with_its_columns(report):
    assert [r.name for r in report.kernels] == [GEMM, SGEMM, NCCL, FLASH, ADD, "(other kernels)"]
    gemm = report.kernels[0]
    assert (gemm.count, gemm.total_ms, gemm.configurations) == (600, 500, 2)
    assert gemm.mean_us == pytest.approx(500_000 / 600)
    assert gemm.share == pytest.approx(500 / 732)
    # 300 ms at half a block per multiprocessor, 200 ms at two.
    assert gemm.blocks_per_sm == pytest.approx((0.5 * 300 + 2 * 200) / 500)
    # 168 registers: 5376 per warp, 3 warps in each quarter, so 12 warps: one block of 8.
    assert gemm.occupancy == pytest.approx((0.5 * 300 + 1 * 200) / 500 * 8 / 64)
    assert (gemm.tensor_cores, gemm.kind, gemm.blocks_rating) == (True, "gemm", "good")
    assert (gemm.block, gemm.grid, gemm.registers) == ((256, 1, 1), (132, 1, 1), 168)
    assert sum(r.share for r in report.kernels) == pytest.approx(1)


def test_s1_12_kernels_beyond_the_cap_share_a_row_without_kernel_figures(report):
    lost = report.kernels[-1]
    assert (lost.count, lost.total_ms, lost.mean_us) == (5, 5, 1000)
    assert {lost.device, lost.blocks_per_sm, lost.occupancy, lost.block, lost.min_us} == {None}


def test_s1_12_kernels_whose_place_was_lost_are_not_counted_twice():
    layer = gpu(activity(0, 5, (0, 1)), activity(OTHER_KERNELS, 7), kernels=(kernel("k", 12, 2),))
    (row,) = build_report(tree(Node(py("f")), gpu=layer)).kernels
    assert (row.name, row.count, row.total_ns, row.share) == ("k", 2, 12, 1)


def test_s1_13_the_report_shows_small_kernels_and_poor_blocks_per_sm(report):
    small = report.gpu.small
    assert small.count == 2600
    assert small.of_count == pytest.approx(2600 / 3237)
    assert small.of_time == pytest.approx(136 / 727)
    ratings = {r.name: r.blocks_rating for r in report.kernels}
    assert ratings[SGEMM] == "poor"
    assert ratings[FLASH] == "good"
    assert ratings[ADD] == "fair"  # exactly one
    line = next(line for line in report.to_text(full=True).splitlines() if "ampere_sgemm" in line)
    assert "0.12 poor" in line


def test_s1_13_a_report_without_small_kernels_does_not_mention_them():
    small = build_report(tree(Node(py("f")), gpu=gpu())).gpu.small
    assert (small.count, small.of_count, small.of_time) == (0, None, None)


def test_s1_14_classes_add_up_to_all_kernels(report):
    rows = {r.name: (r.count, r.total_ns // MS) for r in report.gpu.classes}
    assert rows == {
        "gemm": (2600, 600), "communication": (10, 50), "attention": (20, 40),
        "elementwise": (607, 37), "other": (5, 5),
    }  # fmt: skip
    assert sum(r.share for r in report.gpu.classes) == pytest.approx(1)


def test_kernels_of_a_section_and_of_a_function_are_those_it_launched(report):
    rows = {r.name: (r.count, r.total_ms) for r in report.kernels_in("forward")}
    assert rows == {GEMM: (400, 300), SGEMM: (2000, 100), FLASH: (20, 40)}
    backward = report.kernels_in("backward_pass")  # by its other name
    assert [r.name for r in backward] == [GEMM, NCCL, ADD]
    assert sum(r.share for r in backward) == pytest.approx(1)
    assert report.kernels_in("data") == ()
    own = report.kernels_of(function(report, "Scale.backward"))
    assert [(r.name, r.count) for r in own] == [(ADD, 500)]
    assert len(report.kernels_of(function(report, "train"))) == 5
    with pytest.raises(KeyError, match="'forward'"):
        report.kernels_in("forwad")


# ---- memory ----


def test_s1_18_rising_memory_has_its_slope_per_step(report):
    assert report.memory.slope_bytes_per_step == 50 * MIB
    assert (report.memory.rising, report.memory.grown_bytes) == (1.0, 450 * MIB)
    assert report.memory.mean_peak_allocated == 5000 * MIB


def test_s1_18_a_jump_at_the_start_is_no_slope():
    samples = tuple(MemorySample(i, (900 if i else 100) * MIB, 0, 0, 0) for i in range(20))
    snapshot = Snapshot(meta={}, duration_ns=0, memory=memory(samples=samples, steps=20))
    found = build_report(snapshot).memory
    assert (found.slope_bytes_per_step, found.mean_peak_allocated) == (0, None)
    assert found.rising == 1 / 19


def test_s1_18_many_samples_keep_their_slope():
    samples = tuple(MemorySample(7 * i, 1000 + 21 * i, 0, 0, 0) for i in range(512))
    snapshot = Snapshot(meta={}, duration_ns=0, memory=memory(samples=samples, steps=3584))
    assert build_report(snapshot).memory.slope_bytes_per_step == 3


def test_memory_of_too_few_steps_has_no_slope():
    for samples in ((), (MemorySample(1, 5, 5, 5, 5),)):
        snapshot = Snapshot(
            meta={}, duration_ns=0, memory=memory(samples=samples, steps=len(samples))
        )
        found = build_report(snapshot).memory
        assert (found.slope_bytes_per_step, found.rising) == (None, None)


def test_growth_of_nested_sections_is_taken_out_where_the_tree_tells():
    inner = Node(section("inner"), 1, 1)
    builder = Builder().thread(
        Node(section("outer"), 1, 1, [Node(py("f"), 1, 1, [inner]), Node(section("both"), 1, 1)]),
        Node(section("other"), 1, 1, [Node(section("both"), 1, 1)]),
    )

    def grown(*pairs):
        sections = tuple(MemorySection(name, 1, 0, 0, 0, n) for name, n in pairs)
        report = build_report(builder.snapshot(memory=memory(sections=sections)))
        return {r.name: r.self_grown_bytes for r in report.memory.sections}

    assert grown(("outer", 100), ("inner", 30)) == {"outer": 70, "inner": 30}
    assert grown(("outer", 100), ("inner", 30), ("both", 5)) == {
        "outer": None, "inner": 30, "both": 5,
    }  # fmt: skip


# ---- notes ----


def test_the_notes_say_what_gpu_times_are(report):
    notes = "\n".join(report.notes)
    assert "counts for the section and function that launched it" in notes
    assert "Inherited: 260 ms" in notes
    assert "Not synchronized" in notes
    assert "Unattributed: 5.00 ms of GPU time have no launch" in notes
    assert "Other threads: 4.00 ms" in notes
    assert "CUDA graphs: 20.0 ms" in notes
    assert "over the whole recording, steps or not" in notes


@pytest.mark.parametrize("phase", [None, "setup", "all"])
def test_a_report_on_one_phase_of_the_run_does_not_say_that_gpu_times_are_of_all(phase):
    phases = (PhaseTime("setup", 10 * MS, 1), PhaseTime("steps", 90 * MS, 1))
    notes = build_report(replaced(gpu_training_run(), phases=phases), phase=phase).notes
    assert not any("steps or not" in note for note in notes)


def test_synchronized_runs_say_so_once():
    snapshot = gpu_training_run()
    notes = build_report(replaced(snapshot, meta={"sync": True})).notes
    assert [n for n in notes if "ynchronized" in n] == [n for n in notes if n.startswith("Sync")]


def test_f49_every_fault_of_the_gpu_is_a_sentence_and_work_is_not():
    faults = [
        "dropped", "discarded", "incomplete", "zero_time", "invalid", "unknown_kind", "truncated",
        "late", "stale", "lost_launches", "expired_launches", "negative_delay", "cupti_errors",
        "taken", "rows_dropped", "names_dropped", "timeline_lost", "clock_steps",
        "misdated", "clocks_taken_back", "graph_ids", "unheard",
        "graph_nodes_lost", "owners_lost",
    ]  # fmt: skip
    work = ["records", "kernels", "copies", "memsets", "launches", "syncs", "graph_launches"]

    def notes(counters):
        return build_report(tree(Node(py("f")), gpu=gpu(counters=counters))).notes

    silent = notes(dict.fromkeys(faults, 0) | dict.fromkeys(work, 9))
    for name in (*faults, "new_fault"):
        (told,) = set(notes({name: 7})) - set(silent)
        assert told.endswith(": 7.")
        assert name == "new_fault" or name.replace("_", " ") + ":" not in told
    assert not any(": 9." in note for note in silent)


def test_f49_notes_name_pauses_and_workarounds():
    layer = gpu(reason="The slot is held by x.", paused_ns=5 * MS, pauses=(("torch", 3 * MS),))
    notes = build_report(tree(Node(py("f")), gpu=layer)).notes
    assert "The slot is held by x." in notes
    assert any("3.00 ms, while torch had its records. No figure" in note for note in notes)
    assert any("5.00 ms in total" in note for note in notes)
    layer = gpu(paused_ns=3 * MS, pauses=(("", 3 * MS),))
    notes = build_report(tree(Node(py("f")), gpu=layer)).notes
    assert (
        "The GPU was not observed for 3.00 ms. No figure includes the work of that time." in notes
    )


def test_an_off_layer_has_no_notes_of_what_was_not_measured():
    off = GpuSnapshot("off", "no driver", counters={"cupti_errors": 2})
    notes = build_report(tree(Node(py("f")), gpu=off)).notes
    assert notes == ("Calls of CUPTI that failed: 2.",)


def test_every_amount_that_adds_up_is_one_of_a_row():
    sums = Sums()
    gpu = gpu_training_run().gpu
    for row in gpu.activity:
        sums.add_activity(row)
    for host in gpu.host:
        sums.add_host(host)
    assert set(sums) <= {
        f.name for f in dataclasses.fields(build_report(gpu_training_run()).gpu.use)
    }
    assert (HOW_OWN, HOW_CAPTURED, OTHER_KERNELS, BACKWARD, RUN_BACKWARD) == (0, 2, -8, 6, 7)
