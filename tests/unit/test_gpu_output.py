"""The GPU in text, JSON and flame graphs."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from fastprof.errors import ExportError
from fastprof.export.depth import MAX_DEPTH
from fastprof.render import formats, terminal
from fastprof.report.figures import torch_size
from fastprof.report.model_gpu import MemorySectionRow
from fastprof.results.report import build_report
from fastprof.snapshot.gpu import COPY_H2D, HOW_INHERITED, HOW_UNKNOWN, GpuSnapshot
from fastprof.tables import gpu as tables_gpu
from fastprof.tables.gpu import memory_by_section
from fastprof.tables.layout import table_lines
from fastprof.tables.report import all_tables
from hypothesis import given
from unit.gpu_runs import ADD, FLASH, GEMM, SGEMM, gpu_training_run
from unit.snapshots import (
    MS,
    Builder,
    Node,
    activity,
    gpu,
    h200,
    health,
    kernel,
    memory,
    py,
    replaced,
    timeline,
    tree,
)
from unit.test_gpu_report import made_run, random_runs
from unit.test_report import GOLDEN


@pytest.fixture(scope="module")
def report():
    return build_report(gpu_training_run())


@pytest.mark.parametrize("name", ["gpu_screen.txt", "gpu_report.txt", "gpu_report.json"])
def test_the_gpu_report_is_the_golden_one(report, name):
    full = name == "gpu_report.txt"
    made = report.to_text(full=full) if name.endswith("txt") else report.to_json()
    assert made == (GOLDEN / name).read_text(encoding="ascii")


def titles(report):
    return [table.title.split(" (")[0].split(",")[0].split(":")[0] for table in all_tables(report)]


def test_s1_01_gpu_tables_and_columns_are_there_only_with_a_gpu(report):
    gpu_titles = {
        "GPU devices", "GPU kernels", "Where the host waits for the GPU", "GPU memory",
        "GPU idle time by section of the training thread", "Where GPU work was launched",
        "CUDA graphs",
    }  # fmt: skip
    assert gpu_titles <= set(titles(report))
    columns = ("gpu ms", "kernels", "blocked ms")
    for with_gpu, snapshot in (
        (True, gpu_training_run()),
        (False, replaced(gpu_training_run(), gpu=None, memory=None)),
        (False, replaced(gpu_training_run(), gpu=GpuSnapshot("off", "x"), memory=None)),
    ):
        found = build_report(snapshot)
        for table in all_tables(found):
            if table.title.startswith(("Sections", "Functions")):
                assert [h in table.headers for h in columns] == [with_gpu] * 3
        assert any("GPU" in title for title in titles(found)) == with_gpu


def mostly_unseen(**fields):
    """Return the run after fastprof lost sight of launches: 90 % of the GPU's time has none."""
    snapshot = gpu_training_run()
    seen = [row for row in snapshot.gpu.activity if row.how != HOW_UNKNOWN]
    rows = (*seen, activity(-8, 9 * sum(row.sum_ns for row in seen), how=HOW_UNKNOWN))
    layer = {"activity": rows, "sum_ns": sum(row.sum_ns for row in rows), **fields}
    return replaced(snapshot, gpu=replaced(snapshot.gpu, **layer))


@pytest.mark.parametrize(
    ("fields", "beside"),
    [
        ({}, ""),
        ({"tier": "external"}, "; CUPTI was also used by another profiler"),
        (
            {"tier": "external", "pauses": (("torch.profiler", MS),), "paused_ns": MS},
            "; CUPTI was also used by torch.profiler",
        ),
    ],
)
def test_gpu_time_without_launches_is_said_and_no_row_has_a_share_of_it(fields, beside):
    report = build_report(mostly_unseen(**fields))
    line = (
        "GPU: no launch was seen for 90.0 % of the GPU's time, so sections and functions have no "
        f"GPU time{beside}"
    )
    for full in (False, True):
        assert line in " ".join(report.to_text(full=full).split())
    assert {row.gpu for row in (*report.sections, *report.functions)} == {None}
    for table in all_tables(report):
        if table.title.startswith(("Sections", "Functions")):
            assert not {"gpu ms", "kernels", "blocked ms"} & {*table.headers}
    assert report.gpu.totals.sections_ns == 753 * MS  # what was seen stays in the totals
    (launched,) = [t for t in all_tables(report) if t.title == "Where GPU work was launched"]
    assert "(unattributed)" in dict(zip(*list(zip(*launched.rows, strict=True))[:2], strict=True))


def test_parts_of_the_gpu_s_time_that_are_zero_have_no_row():
    run = tree(Node(py("f")), gpu=gpu(activity(-8, 5 * MS, how=HOW_UNKNOWN)))
    (launched,) = [
        t for t in all_tables(build_report(run)) if t.title == "Where GPU work was launched"
    ]
    assert [row[0] for row in launched.rows] == ["(unattributed)", "all"]


def test_half_of_the_gpu_s_time_with_launches_is_enough():
    half = (activity(-1, MS, (0, 1)), activity(-1, MS, how=HOW_UNKNOWN))
    report = build_report(tree(Node(py("f")), gpu=gpu(*half)))
    assert report.functions[0].gpu_ms == 1
    assert "no launch was seen" not in report.to_text()
    assert build_report(tree(Node(py("f")), gpu=gpu())).functions[0].gpu_ms == 0


def test_s1_12_the_kernel_table_has_every_column(report):
    table = tables_gpu.kernels(report.kernels, report.gpu, 2)
    assert table.title.startswith("GPU kernels, most time first (2 of 6; 80.3 % ran below 100 us")
    row = dict(zip(table.headers, table.rows[1], strict=True))
    assert row == {
        "kernel": SGEMM, "device": "0", "count": "2000", "total ms": "100", "share %": "13.7",
        "mean us": "50.0", "blocks/SM": "0.12 poor", "est. occupancy %": "1.52",
        "tensor cores (by name)": "no", "kind": "gemm", "grid": "16x1x1", "block": "256x1x1",
        "registers": "32",
    }  # fmt: skip


@pytest.mark.parametrize("devices", [1, 2])
def test_rows_of_a_kernel_on_two_devices_are_told_apart_in_a_narrow_terminal(report, devices):
    rows = [replace(report.kernels[0], device=i) for i in range(devices)]
    head = table_lines(tables_gpu.kernels(rows, report.gpu), 80)[0]
    assert ("device" in head.split()) == (devices == 2), head


def test_columns_of_devices_that_say_nothing_are_left_out():
    sampled = health((60,) * 20, (1980,) * 20, (350_000,) * 20, judged=20)
    device = h200(whole=timeline(5 * MS, (-1, MS)), health=sampled)
    report = build_report(tree(Node(py("f")), gpu=gpu(devices=(device,))))
    devices, clocks = tables_gpu.gpu_tables(report)[:2]
    assert "hidden %" not in devices.headers  # nothing was communicated
    assert "communicating %" in devices.headers
    assert clocks.headers[-1] == "throttled %"  # by nothing


def test_every_header_of_a_gpu_figure_has_its_unit(report):
    for table in tables_gpu.gpu_tables(report):
        named = [(header, [row[i] for row in table.rows]) for i, header in enumerate(table.headers)]
        if table.headers == ("figure", "value"):
            named = [(figure, [value]) for figure, value in table.rows]
        for header, cells in named:
            if any(cell.replace(".", "", 1).isdigit() and "." in cell for cell in cells):
                assert header.endswith((" ms", " %", " us", "MiB", "per step")) or "/SM" in header


@pytest.mark.parametrize("width", [80, 100])
def test_no_table_leaves_a_part_with_one_column(report, width):
    """A table that is too wide loses columns that matter little; none is left over alone."""
    for table in all_tables(report):
        names = sum(1 for i, _ in enumerate(table.headers) if i in table.left and i < 2)
        rules = [line for line in table_lines(table, width) if set(line) == {"-", " "}]
        assert all(len(rule.split()) > names + 1 or len(rules) == 1 for rule in rules), table.title


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("There is no CUDA driver.", "GPU: n/a, because there is no CUDA driver."),
        ("CUPTI could not be found", "GPU: n/a, because CUPTI could not be found."),
        ("", "GPU: n/a, because it was switched off."),
    ],
)
def test_s1_01_a_gpu_that_was_off_is_one_line_with_the_cause(reason, line):
    text = build_report(tree(Node(py("f")), gpu=GpuSnapshot("off", reason))).to_text(full=True)
    assert [each for each in text.splitlines() if "GPU" in each] == [line]


def test_a_gpu_that_did_nothing_is_n_a():
    text = str(build_report(tree(Node(py("f")), gpu=gpu())))
    assert "GPU: NVIDIA H200; busy n/a of the recording" in text
    text = str(build_report(tree(Node(py("f")), gpu=gpu(devices=()))))
    assert "GPU: no device; busy n/a" in text


def test_memory_is_shown_without_a_gpu_layer():
    text = str(build_report(tree(Node(py("f")), memory=memory(total_bytes=None))))
    assert "GPU memory: 24.0 GiB reserved at the peak\n" in text
    assert "GPU kernels" not in text


def test_a_terminal_and_a_pipe_say_the_same(report):
    stream = io.StringIO()
    terminal.show(report, stream)
    text = report.to_text()
    assert stream.getvalue().startswith(text)  # below it, the verdict once more


# ---- memory ----


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 b"), (1023, "1023 b"), (1024, "1.00 Kb"), (512 << 20, "512.00 Mb"),
        (3 << 29, "1.50 Gb"), (-(1 << 20), "-1.00 Mb"),
    ],
)  # fmt: skip
def test_s2_12_sizes_are_written_as_the_profiler_of_pytorch_does(size, text):
    assert torch_size(size) == text


def test_s2_12_the_memory_table_is_sorted_by_own_memory_and_cut():
    rows = [MemorySectionRow(f"s{i}", 1, 0, 0, 0, i << 20, i << 20) for i in range(12)]
    rows.append(MemorySectionRow("split", 1, 0, 0, 0, 512 << 20, None))
    table = memory_by_section(rows)
    assert table.headers == ("Name", "CPU Mem", "CUDA Mem", "Self CUDA Mem")
    assert len(table.rows) == 10
    assert table.rows[0] == ("s11", "n/a", "11.00 Mb", "11.00 Mb")
    assert memory_by_section(rows, row_limit=13).rows[-1] == ("split", "n/a", "512.00 Mb", "n/a")


# ---- JSON ----


def test_json_has_all_of_the_gpu(report):
    data = json.loads(report.to_json())
    forward = data["sections"][1]
    assert (forward["gpu_ms"], forward["kernels"], forward["blocked_ms"]) == (441, 2420, 400)
    assert forward["gpu"]["delay_ms"] == pytest.approx(485 / 2430)
    assert forward["gpu"]["self_ms"] == 441
    assert data["gpu"]["utilization"] == 0.75
    assert data["gpu"]["devices"][0]["steps"]["idle"][0] == {"section": "data", "idle_ms": 140}
    assert data["gpu"]["totals"]["unattributed_ms"] == 5
    assert data["gpu"]["lines"][0]["text"].startswith("train at train.py:88 blocks 36.0 ms")
    assert data["kernels"][1]["blocks_rating"] == "poor"
    assert data["memory"]["slope_bytes_per_step"] == 50 << 20
    assert not any(name.endswith("_ns") for name in names(data))


def names(value):
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from names(item)


def test_json_of_a_run_without_gpu_has_nothing_that_looks_measured():
    found = build_report(replaced(gpu_training_run(), gpu=None, memory=None))
    data = json.loads(found.to_json())
    assert (data["gpu"], data["kernels"], data["memory"]) == (None, [], None)
    assert data["sections"][0]["gpu_ms"] is data["sections"][0]["gpu"] is None


# ---- flame graphs ----


def collapsed(report):
    total = {}
    for line in formats.render(report, "collapsed-gpu").splitlines():
        stack, weight = line.rsplit(" ", 1)
        path = tuple(stack.split(";"))
        total[path] = total.get(path, 0) + int(weight)
    return total


def speedscope(report):
    data = json.loads(formats.render(report, "speedscope-gpu"))
    frames = [frame["name"] for frame in data["shared"]["frames"]]
    (profile,) = data["profiles"]
    assert profile["type"] == "sampled"
    assert profile["endValue"] == sum(profile["weights"])
    total = {}
    for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
        path = tuple(frames[i] for i in sample)
        total[path] = total.get(path, 0) + weight
    return total


def test_stacks_by_gpu_time_end_in_kernels_and_copies(report):
    found = collapsed(report)
    main = ("MainThread", "train (/x/train.py:1)")
    model = (*main, "[forward]", "Model.forward (/x/model.py:30)")
    assert found[(*model, GEMM)] == 300 * MS
    assert found[(*model, FLASH)] == 40 * MS
    assert found[(*main, "[data]", "(copy host to device)")] == 30 * MS
    backward = (*main, "[backward]", "run_backward")
    assert found[(*backward, GEMM)] == 200 * MS
    assert found[(*backward, "Scale.backward (/x/model.py:90)", ADD)] == 10 * MS
    assert found[("(other threads)", ADD)] == 4 * MS
    assert found[("(unattributed)", "(other kernels)")] == 5 * MS
    assert sum(found.values()) == gpu_training_run().gpu.sum_ns
    assert speedscope(report) == found


@given(random_runs())
def test_stacks_by_gpu_time_add_up_to_all_of_it(run):
    snapshot = made_run(*run)
    report = build_report(snapshot)
    assert sum(collapsed(report).values()) == snapshot.gpu.sum_ns
    assert speedscope(report) == collapsed(report)


def test_stacks_are_cut_at_a_depth_and_lose_no_time():
    node = Node(py("f"), 1, 1)
    for _ in range(3000):
        node = Node(py("f"), 1, 1, [node])
    deep = activity(COPY_H2D, 7, (0, 3000))
    builder = Builder().thread(node).thread(Node(py("g"), 1, 1), ident=2)
    inherited = activity(COPY_H2D, 5, (1, 1), how=HOW_INHERITED, via=(0, 2999))
    found = collapsed(build_report(builder.snapshot(gpu=gpu(deep, inherited))))
    assert sorted(found.values()) == [5, 7]
    assert {len(stack) for stack in found} == {MAX_DEPTH + 2, MAX_DEPTH + 3}


def test_a_kernel_name_with_a_semicolon_is_one_frame():
    layer = gpu(activity(0, 5, (0, 1)), kernels=(kernel("a;b 7", 5),))
    text = formats.render(build_report(tree(Node(py("f", 1)), gpu=layer)), "collapsed-gpu")
    assert text == "MainThread;f (prog.py:1);a\\x3bb 7 5\n"


@pytest.mark.parametrize("name", ["collapsed-gpu", "speedscope-gpu"])
def test_stacks_by_gpu_time_need_a_gpu_and_contexts(report, name, tmp_path):
    for layer in (None, GpuSnapshot("off", "x")):
        with pytest.raises(ExportError, match="no"):
            formats.render(build_report(tree(Node(py("f")), gpu=layer)), name)
    report.save(tmp_path / "run.stats")
    from fastprof.results.saved import load

    with pytest.raises(ExportError):
        formats.render(load(tmp_path / "run.stats"), name)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.gpu.collapsed", "collapsed-gpu"),
        ("a.gpu.folded", "collapsed-gpu"),
        ("a.gpu.speedscope.json", "speedscope-gpu"),
        ("gpu.collapsed", "collapsed"),
        ("a.speedscope.json", "speedscope"),
    ],
)
def test_suffixes_choose_what_a_flame_graph_weighs(path, name):
    assert formats.format_of(path).name == name


def test_pstats_files_know_nothing_of_a_gpu(tmp_path):
    with_gpu, without = tmp_path / "a.stats", tmp_path / "b.stats"
    build_report(gpu_training_run()).save(with_gpu)
    build_report(replaced(gpu_training_run(), gpu=None, memory=None)).save(without)
    assert with_gpu.read_bytes() == without.read_bytes()
