"""Ranks that wait for each other in collectives on their (simulated) GPUs, live."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fastprof
import pytest
from children import ok
from fake_handles import FakeGpu
from helpers import child_env, time_scale

SOURCE = str(Path(fastprof.__file__).parents[1])

PROGRAM = """
import logging, os, sys, time
import fakegpu
from fastprof import Profiler, profile_section
from fastprof.capture import gpu_find
import fastprof.ranks.blocks as blocks
import fastprof.ranks.exchange.live as live
import fastprof.ranks.exchange.pace as pace
import fastprof.ranks.exchange.recording as recording

gpu_find._TOOLKITS = "/nowhere*"
gpu_find.SONAMES = ()
gpu_find._wheel_folders = list
# As with windows of ten seconds, but five times as fast.
pace.PUBLISH_S, pace.LOOK_S = 1.0, 0.2
blocks.WINDOW_S = recording._SECONDS = 2.0
recording._uses_cuda = lambda: True

rank, seconds, kernel = int(os.environ["RANK"]), float(sys.argv[1]), sys.argv[2]
MS = 1_000_000
own = 20 if rank == 1 else 5  # the last one to arrive has the shortest collective


class Said(logging.StreamHandler):
    def emit(self, record):
        super().emit(record)
        if " is late by " in record.getMessage():
            open("said", "w").close()


logging.getLogger("fastprof").addHandler(Said())
began = time.monotonic()
with Profiler(gpu=True) as prof:
    while time.monotonic() < began + seconds and not os.path.exists("said"):
        with profile_section("data"):
            time.sleep(own / 1000)
        with profile_section("forward"):
            # As many as make CUPTI return its buffers.
            fakegpu.launch("ampere_sgemm_128x64", MS // 10, count=50)
            fakegpu.launch(kernel, (35 - own) * MS)
            fakegpu.item()
        prof.step()
"""

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def told(fake_gpu: FakeGpu, folder: Path, seconds: int, kernel: str) -> str:
    """Run two ranks; return what rank 0 logs."""
    program = folder / "train.py"
    program.write_text(PROGRAM)
    processes = []
    for rank in range(2):
        env = {
            **fake_gpu.env(), "RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "test",
            "FASTPROF_RANKS_DIR": str(folder / "meet"), "CUDA_HOME": "",
            "PYTHONPATH": f"{SOURCE}:{fake_gpu.directory}",
        }  # fmt: skip
        processes.append(
            subprocess.Popen(
                [sys.executable, str(program), str(seconds), kernel],
                env=child_env(env, guard=False),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder,
            )
        )  # fmt: skip
    try:
        said = [p.communicate(timeout=120 * time_scale())[0] for p in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [p.returncode for p in processes] == [0, 0], said
    assert " is late " not in said[1]
    return said[0]


@pytest.mark.slow
def test_the_rank_whose_gpu_waits_least_is_told(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    said = told(fake_gpu, tmp_path, 60, ALL_REDUCE)
    (line,) = (line for line in said.splitlines() if " is late by " in line)
    assert line.startswith("Rank 1 (host ")
    assert " is late by 1" in line  # 15 ms per step
    assert ": data" in line


@pytest.mark.slow
def test_a_broadcast_names_nobody(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    said = told(fake_gpu, tmp_path, 12, "ncclDevKernel_Broadcast_RING_LL")
    assert " is late " not in said


def test_a_window_has_the_waits_on_the_gpu_step_by_step(fake_gpu: FakeGpu) -> None:
    ok(
        fake_gpu,
        """
        from array import array
        r = begin()
        assert r.window(0)["gpu_busy"] is None  # nothing was launched
        for step in range(4):
            fakegpu.launch("gemm", 2_000_000)
            if step:
                fakegpu.launch("ncclDevKernel_AllReduce_Sum_f32", step * 1_000_000)
                fakegpu.launch("ncclDevKernel_Broadcast_RING_LL", 3_000_000)
            fakegpu.item()
            r.step()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            window = r.window(0)
            waits = array("q", window["gpu_wait_ns"]).tolist()
            if min(waits[1:]) >= 0:
                break
            time.sleep(0.05)
        assert waits[1:] == [1_000_000, 2_000_000, 3_000_000], waits
        assert array("q", r.window(2)["gpu_wait_ns"]).tolist() == waits[2:]
        computed = array("q", window["gpu_compute_ns"]).tolist()
        assert computed[1:] == [2_000_000] * 3, computed
        assert window["gpu_busy"] is False
        fakegpu.launch("ncclDevKernel_AllReduce_Sum_f32", 10**15)  # waits for another rank
        while not r.window(0)["gpu_busy"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        r.disable()
        r.stop_sections()
        r.gpu_stop(0.0)
        assert r.window(0)["gpu_busy"] is None
        """,
    )


def test_a_window_waits_without_the_gil_while_records_are_decoded(fake_gpu: FakeGpu) -> None:
    ok(
        fake_gpu,
        """
        def decoded():
            return fakegpu.counters()["calls"]["cuptiActivityGetNextRecord"]

        def read():
            while not over:
                r.window(0)

        r = begin()
        r.step()
        over = []
        reader = threading.Thread(target=read)
        reader.start()
        # The collector decodes a buffer of 20 records for a second.
        fakegpu.slow("cuptiActivityGetNextRecord", 50)
        most, before, deadline = 0, decoded(), time.monotonic() + 60
        for _ in range(5):
            fakegpu.launch("gemm", 1000, count=20)
            fakegpu.item()
            until = before + 20
            while before < until and time.monotonic() < deadline:
                now = decoded()
                most, before = max(most, now - before), now
        over.append(1)
        reader.join()
        assert before >= 5 * 20, before
        # Else this thread would have stood still for most of a buffer.
        assert most < 10, most
        fakegpu.slow("cuptiActivityGetNextRecord", 0)
        end(r)
        """,
    )
