"""The GPU's and the memory's part of a saved run: exact in both directions, and checked."""

from __future__ import annotations

import gzip
import io
import json
import random

import pytest
from fastprof.errors import SnapshotError
from fastprof.read import fprof
from fastprof.read.limits import Limits
from fastprof.render import formats
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot
from fastprof.snapshot.codec import read
from fastprof.snapshot.gpu import (
    COPY_H2D,
    HOW_INHERITED,
    OTHER_KERNELS,
    GpuLine,
    GpuSnapshot,
)
from fastprof.snapshot.kinds import Known
from fastprof.snapshot.memory import MemorySample, MemorySection
from unit.snapshots import (
    MIB,
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
    section,
    timeline,
    waits,
)


def gpu_run() -> Snapshot:
    """Return two threads; every field of both parts has a distinctive value."""
    builder = Builder()
    forward = Node(section("forward"), 3, 40 * MS, [Node(py("model"), 3, 20 * MS)])
    builder.thread(Node(py("train"), 1, 5 * MS, [forward]))
    builder.thread(Node(py("backward_fn"), 1, 9 * MS), ident=2, name="autograd")
    made = gpu(
        activity(0, 2**53 + 1, (0, 3), count=7),
        activity(0, 5, (1, 1), how=HOW_INHERITED, via=(0, 2)),
        activity(COPY_H2D, 11, (0, 1), size=4096),
        activity(OTHER_KERNELS, 13, how=4),
        reason="The slot was taken.",
        cupti_version=130001,
        cupti_path="libcupti.so.13",
        driver_version=13000,
        devices=(
            h200(
                whole=timeline(70, (-1, 10), (builder.key(section("forward")), 20)),
                step_count=3,
                health=health(judged=7, sw_power_cap=5, hw_thermal=2),
            ),
        ),
        kernels=(kernel("gemm", 2**53 + 6, 8, small_count=1, small_ns=5, blocks_ns=1.5),),
        host=(waits((0, 2), launches=9, delays=8, delay_ns=70, syncs=2, blocked_ns=99),),
        lines=(GpuLine(0, 2, "/x/train.py", 88, "train", 2, 90),),
        paused_ns=17,
        pauses=(("torch.profiler", 17),),
        counters={"records": 9, "dropped": 1},
        health_reason="NVML stopped answering",
        health_hung=True,
    )
    return builder.snapshot(
        gpu=made,
        memory=memory(
            samples=(MemorySample(1, 10, 20, 30, 40), MemorySample(5, 11, 21, 31, 41)),
            peaks_reset=True, steps=9, sum_peak_allocated=270, retries=1, ooms=2,
            device_allocs=30, device_frees=4, first_allocated=10, last_allocated=11,
            sections=(MemorySection("forward", 3, 30, 40, 11, -MIB),),
        ),
    )  # fmt: skip


def packed(snapshot):
    stream = io.BytesIO()
    fprof.write_snapshot(snapshot, stream)
    return stream.getvalue()


def plain(snapshot):
    return json.loads(gzip.decompress(packed(snapshot)))


def test_a_run_with_a_gpu_is_read_back_exactly():
    snapshot = gpu_run()
    read = fprof.parse(packed(snapshot), Limits())
    assert read == snapshot
    assert build_report(read) == build_report(snapshot)
    assert read.gpu.activity[0].sum_ns == 2**53 + 1
    assert type(read.gpu.kernels[0].grid_varied) is bool


@pytest.mark.parametrize("name", ["gpu", "memory"])
def test_an_older_run_has_no_gpu_layer(name):
    data = plain(gpu_run())
    del data[name]
    assert getattr(Snapshot.from_dict(data), name) is None
    data[name] = None
    assert getattr(Snapshot.from_dict(data), name) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["gpu"], []),
        (["gpu", "status"], "maybe"),
        (["gpu", "reason"], None),
        (["gpu", "tier"], "magic"),
        (["gpu", "cupti_version"], -1),
        (["gpu", "cupti_path"], 5),
        (["gpu", "devices", 0, "multiprocessors"], None),
        (["gpu", "devices", 0, "capability"], [9]),
        (["gpu", "devices", 0, "whole", "wall_ns"], 101),
        (["gpu", "devices", 0, "whole", "overlap_ns"], 71),
        (["gpu", "devices", 0, "whole", "idle", 0], [99, 10]),
        (["gpu", "devices", 0, "whole", "idle", 0], [-2, 10]),
        (["gpu", "devices", 0, "whole", "idle", 0], [-1]),
        (["gpu", "devices", 0, "steps"], None),
        (["gpu", "kernels", 0], []),
        (["gpu", "kernels", 0, 0], 7),
        (["gpu", "kernels", 0, 11], 2),
        (["gpu", "kernels", 0, 14], 2**62),
        (["gpu", "kernels", 0, 16], 9),
        (["gpu", "kernels", 0, 18], -1.0),
        (["gpu", "kernels", 0, 18], "x"),
        (["gpu", "activity", 0], [0, 1]),
        (["gpu", "activity", 0, 0], 2),
        (["gpu", "activity", 0, 0], -1),
        (["gpu", "activity", 0, 1], 4),
        (["gpu", "activity", 1, 2], -2),
        (["gpu", "activity", 1, 3], 99),
        (["gpu", "activity", 0, 4], 5),
        (["gpu", "activity", 0, 5], 1),
        (["gpu", "activity", 0, 5], -9),
        (["gpu", "activity", 0, 6], -1),
        (["gpu", "activity", 1, 7], 6),
        (["gpu", "activity", 1, 7], 5.0),
        (["gpu", "host", 0], [0] * 10),
        (["gpu", "host", 0, 10], True),
        (["gpu", "lines", 0, 1], 99),
        (["gpu", "lines", 0, 2], None),
        (["gpu", "lines", 0, 3], -1),
        (["gpu", "sum_ns"], 1),
        (["gpu", "paused_ns"], "soon"),
        (["gpu", "pauses", 0], ["x"]),
        (["gpu", "counters", "dropped"], -1),
        (["gpu", "health_reason"], 7),
        (["gpu", "health_hung"], 1),
        (["gpu", "devices", 0, "health"], []),
        (["gpu", "devices", 0, "health", "temperature_c"], [1, 60, 60, 60]),
        (["gpu", "devices", 0, "health", "temperature_c"], [0, 0, 0, 0, 0]),
        (["gpu", "devices", 0, "health", "power_mw"], [2, 9, 4, 5, 6]),
        (["gpu", "devices", 0, "health", "power_mw"], [2, 11, 4, 5, 5]),
        (["gpu", "devices", 0, "health", "sm_clock_mhz", 1], -1),
        (["gpu", "devices", 0, "health", "reasons"], {}),
        (["gpu", "devices", 0, "health", "reasons", "samples"], 0),
        (["gpu", "devices", 0, "health", "reasons", "throttled"], 8),
        (["gpu", "devices", 0, "health", "reasons", "hw_thermal"], None),
        (["memory"], 7),
        (["memory", "device"], -1),
        (["memory", "total_bytes"], "much"),
        (["memory", "peaks_reset"], 1),
        (["memory", "samples", 0], [1, 2, 3]),
        (["memory", "samples", 1, 0], 1),
        (["memory", "steps"], 1),
        (["memory", "sections", 0], ["forward"]),
        (["memory", "sections", 0, 0], 0),
        (["memory", "sections", 0, 5], 2**60),
    ],
)
def test_f46_every_field_of_the_gpu_is_checked(path, value):
    data = plain(gpu_run())
    Snapshot.from_dict(data)
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(SnapshotError) as caught:
        Snapshot.from_dict(data)
    assert str(caught.value).startswith(path[0])
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("part", ["gpu", "memory"])
def test_f46_every_field_of_the_gpu_must_be_there(part):
    data = plain(gpu_run())
    for name in list(data[part]):
        if name in (
            "tier",
            "cupti_version",
            "cupti_path",
            "driver_version",
            "total_bytes",
            "parts",
            "health_reason",
            "health_hung",
        ):
            continue  # these may be unknown
        kept = data[part].pop(name)
        with pytest.raises(SnapshotError, match=name):
            Snapshot.from_dict(data)
        data[part][name] = kept


def test_s1_22_without_readings_of_the_driver_there_is_no_health():
    data = plain(gpu_run())
    del data["gpu"]["devices"][0]["health"]
    read = Snapshot.from_dict(data)
    assert read.gpu.devices[0].health is None
    report = build_report(read)
    assert report.gpu.devices[0].health is None
    assert "temperature" not in report.to_text(full=True)


def test_a_live_recording_may_hand_over_tuples():
    value = gpu_run().gpu.to_dict()
    value["activity"] = tuple(tuple(row) for row in value["activity"])
    known = Known({"keys": 9}, [4, 2])
    assert read(GpuSnapshot, value, "gpu", known) == gpu_run().gpu


def test_a_layer_that_was_off_says_why():
    off = GpuSnapshot("off", "There is no CUDA driver.")
    snapshot = replaced(gpu_run(), gpu=off)
    assert fprof.parse(packed(snapshot), Limits()).gpu == off


def test_f46_damaged_gpu_parts_are_refused_or_have_a_report():
    text = gzip.decompress(packed(gpu_run()))
    start = text.index(b'"gpu":')
    dice = random.Random(49)
    read = 0
    for _ in range(3000):
        source = bytearray(text)
        for _ in range(dice.randint(1, 3)):
            source[dice.randrange(start, len(source))] = dice.choice(b'0123456789-.,:"[]{}en')
        try:
            found = fprof.parse(gzip.compress(bytes(source), 1), Limits())
        except ValueError:
            continue
        read += 1
        report = build_report(found)
        json.loads(report.to_json(), parse_constant=lambda _: pytest.fail("not strict"))
        assert report.to_text(full=True).isascii()
        if found.gpu and found.gpu.status == "on":
            formats.render(report, "collapsed-gpu")
    assert read > 100


def test_f46_huge_numbers_of_a_device_or_kernel_give_no_error():
    for name in ("multiprocessors", "registers_per_multiprocessor", "warp_size"):
        device = h200(**{name: 2**63 - 1})
        huge = kernel("k", 2**62, block_x=2**62, block_y=2**62, registers=2**62, blocks_ns=1e308)
        snapshot = replaced(gpu_run(), gpu=gpu(devices=(device,), kernels=(huge, huge, huge)))
        read = fprof.parse(packed(snapshot), Limits())
        text = build_report(read).to_json()
        json.loads(text, parse_constant=lambda _: pytest.fail("not strict"))
