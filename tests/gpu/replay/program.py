"""The program behind the committed files: some of every activity, on the fake."""

from __future__ import annotations

import json
import os
import sys

# The launching module searches the simulated device in the library itself.
os.environ["REPLAY_SHIM"] = os.environ["FASTPROF_CUPTI"]
os.environ["FASTPROF_CUPTI"] = os.environ["FASTPROF_SHIM_REAL"]

import fakegpu
from fastprof import profile_section
from fastprof._core import Recorder


def train(engine: fakegpu.Engine, graph: int) -> None:
    with profile_section("forward"):
        fakegpu.memcpy("HtoD", 4096)
        fakegpu.launch("ampere_sgemm_128x64_nn", 20_000, grid=(8, 4, 1), count=3)
        fakegpu.launch("triton_fused_add", 5_000, driver_only=True, stream=8)
        fakegpu.memset(256)
    with profile_section("backward"):
        engine.run_backward(["dgrad", "wgrad"], threads=2, duration_ns=10_000)
    with profile_section("optimizer"):
        fakegpu.launch("ncclDevKernel_AllReduce", 15_000, stream=9)
        fakegpu.replay(graph)
    fakegpu.item()


def main(tier: str) -> None:
    recorder = Recorder(skip_steps=0)
    recorder.start_sections()
    recorder.enable()
    answer = recorder.gpu_start(
        [os.environ["REPLAY_SHIM"]],
        os.environ["FASTPROF_CUDA_DRIVER"],
        initialise=True,
        tier=tier,
        period_s=0.02,
    )
    assert answer["state"] == "on", answer
    engine = fakegpu.Engine()
    fakegpu.capture_begin()
    fakegpu.launch("captured_gemm", 8_000, count=2)
    graph = fakegpu.instantiate(fakegpu.capture_end())
    for _ in range(5):
        train(engine, graph)
        recorder.mark()
    fakegpu.synchronize()
    recorder.disable()
    recorder.stop_sections()
    recorder.gpu_stop()
    print(json.dumps(recorder.export()["gpu"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
