"""Programs of the case ``gpu``, each in a separate process; each prints one JSON object.

They run with the fake driver and libcupti of tests/gpu, except ``start``, which runs with the
machine's own libraries.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import harness
from fastprof import Profiler, profile_section
from fastprof._core import Recorder
from harness import Candidate

PERIOD_S = 0.05


def _recorder(tier: str) -> Recorder:
    recorder = Recorder(skip_steps=0)
    recorder.start_sections()
    _attach(recorder, tier)
    return recorder


def _attach(recorder: Recorder, tier: str) -> None:
    answer = recorder.gpu_start(
        [os.environ["FASTPROF_CUPTI"]],
        os.environ["FASTPROF_CUDA_DRIVER"],
        initialise=True,
        tier=tier,
        period_s=PERIOD_S,
    )
    if answer["state"] != "on":
        raise RuntimeError(str(answer))


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _launch(count: int, pause_s: float = 0.0) -> None:
    """Launch kernels in four sections, so short that the fake device keeps up."""
    import fakegpu

    part = 250
    for i in range(count // (4 * part)):
        for name in ("data", "forward", "backward", "optimizer"):
            with profile_section(name):
                fakegpu.launch(f"kernel_{i % 40}", 1, count=part)
        if pause_s:
            time.sleep(pause_s)


def burst(tier: str, count: int) -> dict[str, Any]:
    """Launch as fast as the fake can; return the counts that were recorded."""
    recorder = _recorder(tier)
    begin = time.perf_counter()
    _launch(count)
    seconds = time.perf_counter() - begin
    recorder.stop_sections()
    recorder.gpu_stop(10.0)
    gpu = recorder.export()["gpu"]
    counters = gpu["counters"]
    placed = sum(row[6] for row in gpu["activity"] if row[4] == 0)
    return {
        "launches_per_s": count / seconds,
        "kernels": counters["kernels"],
        "placed": placed,
        "lost": sum(counters[k] for k in ("dropped", "discarded", "lost_launches", "truncated")),
        "count": count // 1000 * 1000,
    }


def memory(count: int) -> dict[str, Any]:
    """Return the growth of the resident set over ``count`` launches, after a warm-up of a tenth."""
    recorder = _recorder("callbacks")
    pause_s = 0.004  # at most 250 000 launches a second
    _launch(count // 10, pause_s)
    before = _resident_bytes()
    _launch(count, pause_s)
    grown = _resident_bytes() - before
    recorder.gpu_stop(10.0)
    counters = recorder.export()["gpu"]["counters"]
    return {"count": count, "grown_bytes": grown, "discarded": counters["discarded"]}


def sections(rounds: int, repeat: int) -> dict[str, Any]:
    """Return the seconds of a section without a collector and with each tier, in turns."""
    recorder = Recorder(skip_steps=0)
    recorder.start_sections()

    def candidate(tier: str) -> Candidate:
        return Candidate(tier, lambda: _attach(recorder, tier), lambda: recorder.gpu_stop(0.0))

    def run(n: int) -> None:
        for _ in range(n):
            with profile_section("forward"):
                pass

    candidates = [Candidate("off"), candidate("callbacks"), candidate("external")]
    samples = harness.interleave(candidates, run, repeat, rounds)
    return {name: s.best for name, s in samples.items()}


def start(rounds: int) -> dict[str, Any]:
    """Return the seconds that a profiler takes to start and stop, with and without the GPU."""
    best = {"gpu=False": float("inf"), 'gpu="auto"': float("inf")}
    why = ""
    for _ in range(rounds):
        for name in best:
            profiler = Profiler(functions=False, gpu="auto" if "auto" in name else False)
            begin = time.perf_counter()
            profiler.start()
            profiler.stop()
            best[name] = min(best[name], time.perf_counter() - begin)
            gpu = profiler.report().gpu
            why = gpu.reason if gpu is not None else why
    return {**best, "why": why}


def main(argv: list[str]) -> int:
    name, arguments = argv[0], argv[1:]
    if name == "burst":
        result = burst(arguments[0], int(arguments[1]))
    elif name == "memory":
        result = memory(int(arguments[0]))
    elif name == "sections":
        result = sections(int(arguments[0]), int(arguments[1]))
    else:
        result = start(int(arguments[0]))
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
