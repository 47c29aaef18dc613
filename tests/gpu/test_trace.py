"""Traces of the fake device's work: times, streams and launches."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import children
import fastprof
import pytest
import trace_kit
from fake_handles import FakeGpu

PROGRAM = """
import fastprof
fakegpu.set("launch_latency_ns", 20000)
prof = fastprof.Profiler(gpu=True, trace={"min_us": 0}, skip_first=0, output=sys.argv[1],
                         schedule=SCHEDULE)
engine = fakegpu.Engine()
with prof:
    for step in range(STEPS):
        with profile_section("forward"):
            for _ in range(5):
                fakegpu.launch("gemm", 30000)
            fakegpu.memcpy("HtoD", 4096, 7000)
        with profile_section("backward"):
            engine.run_backward(["dgemm", "wgemm"], threads=2, duration_ns=5000)
        with profile_section("optimizer"):
            fakegpu.memset(64, 3000)
            fakegpu.launch("adam", 10000, driver_only=True)
        fakegpu.item(1000)
        prof.step()
"""


def traced(
    gpu: FakeGpu, tmp_path: Path, *, steps: int = 4, schedule: str = "None", **env: str
) -> dict[str, Any]:
    path = tmp_path / "run.fprof"
    code = PROGRAM.replace("STEPS", str(steps)).replace("SCHEDULE", schedule)
    children.ok(gpu, code, str(path), **env)
    report = fastprof.load(path)
    assert report.snapshot.gpu is not None, report.notes
    assert report.snapshot.gpu.status == "on", report.notes
    report.save(tmp_path / "run.trace.json.gz")
    data = trace_kit.load(tmp_path / "run.trace.json.gz")
    trace_kit.check(data)
    # The driver's clock may time calls: they overlap by its difference from ours.
    own = [e for e in data["traceEvents"] if e.get("cat") != "cuda_runtime"]
    trace_kit.check_pairs({**data, "traceEvents": own})
    return data


def end(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def test_s0_19_kernels_copies_and_waits_are_in_the_trace(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    data = traced(fake_gpu, tmp_path)
    kernels = trace_kit.spans(data, cat="kernel")
    assert len(kernels) == 4 * 8
    assert len(trace_kit.spans(data, "gemm")) == 20
    # Conversion between two clocks is exact to well below a microsecond.
    assert {round(e["dur"]) for e in trace_kit.spans(data, "gemm")} == {30}
    copies = trace_kit.spans(data, cat="gpu_memcpy")
    assert {e["args"]["bytes"] for e in copies if e["name"] == "Memcpy HtoD"} == {4096}
    assert len(trace_kit.spans(data, cat="gpu_memset")) == 4
    waits = [e for e in trace_kit.spans(data, cat="cuda_runtime") if e["name"] == "cudaSynchronize"]
    assert len(waits) == 4
    counters = {e["name"] for e in data["traceEvents"] if e["ph"] == "C"}
    assert "GPU 0 busy (%)" in counters


def test_arrows_lead_from_the_launch_to_the_kernel(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    data = traced(fake_gpu, tmp_path)
    begins = {e["id"]: e for e in data["traceEvents"] if e["ph"] == "s"}
    ends = defaultdict(list)
    for event in data["traceEvents"]:
        if event["ph"] == "f":
            ends[event["id"]].append(event)
    launches = {
        e["args"]["correlation"]: e
        for e in trace_kit.spans(data, cat="cuda_runtime")
        if "args" in e
    }
    forwards = trace_kit.spans(data, "forward")
    for kernel in trace_kit.spans(data, cat="kernel"):
        number = kernel["args"]["correlation"]
        launch = launches[number]
        assert begins[number]["tid"] == launch["tid"]
        assert launch["ts"] <= begins[number]["ts"] <= end(launch)
        assert kernel["ts"] in {e["ts"] for e in ends[number]}
        assert kernel["ts"] >= launch["ts"]
        if kernel["name"] == "gemm":
            assert launch["tid"] == forwards[0]["tid"]
            assert any(f["ts"] <= launch["ts"] <= end(f) for f in forwards)
    # Autograd launches from its own threads.
    main = forwards[0]["tid"]
    backward = [k for k in trace_kit.spans(data) if k["name"] in ("dgemm", "wgemm")]
    assert {launches[k["args"]["correlation"]]["tid"] for k in backward} - {main}


def test_calls_are_nested_in_what_made_them(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    data = traced(fake_gpu, tmp_path)
    calls = trace_kit.spans(data, cat="cuda_runtime")
    tid = trace_kit.spans(data, "forward")[0]["tid"]
    hosts = [e for e in trace_kit.spans(data) if e["tid"] == tid and e["pid"] > 1000]
    assert any(e["dur"] > 0 for e in calls)
    # All events of one thread, including the calls: nothing overlaps.
    trace_kit._check_nested([e for e in hosts if e["tid"] == tid])


def test_e6_work_launched_in_a_window_belongs_to_it(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    schedule = "fastprof.Schedule(skip_first=1, wait=1, warmup=0, active=1, repeat=2)"
    data = traced(fake_gpu, tmp_path, steps=8, schedule=schedule)
    assert len(trace_kit.spans(data, "gemm")) == 2 * 5
    assert len(trace_kit.spans(data, "adam")) == 2
    assert len(trace_kit.spans(data, "ProfilerStep#2")) == 1


def test_f49_without_the_slot_calls_have_no_thread(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    data = traced(fake_gpu, tmp_path, FAKE_CUPTI_HOLDER="another tool")
    assert len(trace_kit.spans(data, "gemm")) == 20
    launches = [e for e in trace_kit.spans(data, "cudaLaunchKernel") if e["args"]["correlation"]]
    assert len(launches) == 4 * 8
    assert {e["tid"] for e in launches} == {2}
    names = [e["args"] for e in data["traceEvents"] if e["name"] == "thread_name"]
    assert {"name": "threads not recorded"} in names


@pytest.mark.parametrize("tier", ["callbacks", "external"])
def test_f32_the_records_are_bounded(fake_gpu: FakeGpu, tier: str) -> None:
    children.ok(
        fake_gpu,
        f"""
        r = begin({tier!r})
        r.trace_open(max_events=50)
        for _ in range(200):
            fakegpu.launch("gemm", 3000)
        r.trace_close()
        fakegpu.launch("after", 3000)
        t = end(r)
        gpu = r.export(trace=True)["trace"]["gpu"]
        assert len(gpu["records"]) == len(gpu["calls"]) == 50, gpu
        assert gpu["lost"] == 300, gpu["lost"]
        assert gpu["lost_until_ns"] > 0
        assert {{row[0] for row in gpu["records"]}} == {{0}}
        starts = [row[3] for row in gpu["records"]]
        assert starts == sorted(starts)
        """,
    )


def test_a_window_that_was_open_before_the_gpu_began(fake_gpu: FakeGpu) -> None:
    children.ok(
        fake_gpu,
        """
        r = Recorder(skip_steps=0)
        r.start_sections()
        r.trace_open()
        fakegpu.launch("before", 3000)
        assert attach(r)["state"] == "on"
        for _ in range(10):
            fakegpu.launch("gemm", 3000)
        r.gpu_flush(1.0)
        early = r.export(trace=True)["trace"]["gpu"]
        r.clear()
        fakegpu.launch("late", 3000)
        t = end(r)
        late = r.export(trace=True)["trace"]["gpu"]
        assert len(early["records"]) <= 10 and len(early["calls"]) == 10, early
        assert len(late["calls"]) == 1 and len(late["records"]) == 1, late
        """,
    )


def test_without_a_trace_launches_say_no_more_than_before(fake_gpu: FakeGpu) -> None:
    children.ok(
        fake_gpu,
        """
        with recorded() as it:
            for _ in range(100):
                fakegpu.launch("gemm", 3000)
        assert it.recorder.export(trace=True)["trace"] is None
        """,
    )
