"""Programs for torch.profiler beside fastprof, and for steps on and off; CUDA only.

python torch_profiler.py kineto|fastprof|after|overhead
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fastprof
import oracles
import torch
from fastprof import profile_section


def make() -> Any:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True).cuda()
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3)
    batch = torch.randn(16, 64, 128, device="cuda")

    def step() -> None:
        with profile_section("forward"):
            loss = layer(batch).square().mean()
        with profile_section("backward"):
            loss.backward()
        with profile_section("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    for _ in range(5):  # lazily made state, algorithms chosen
        step()
    torch.cuda.synchronize()
    return step


def by_kineto(step: Any, steps: int) -> dict[str, list[float]]:
    """Kernel name -> count, ns."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as prof:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = {}
    for event in prof.profiler.kineto_results.events():
        on_cuda = event.device_type() == torch.autograd.DeviceType.CUDA
        name = event.name()
        if on_cuda and not name.startswith(("Memcpy", "Memset")) and name not in SECTIONS:
            row = found.setdefault(oracles.plain_name(name), [0, 0])
            row[0] += 1
            row[1] += event.duration_ns()
    return found


SECTIONS = ("forward", "backward", "optimizer")


def by_fastprof(step: Any, steps: int) -> dict[str, list[float]]:
    with fastprof.Profiler(gpu=True, skip_first=0) as prof:
        for _ in range(steps):
            step()
            prof.step()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = {}
    gpu = prof.report().snapshot.gpu
    assert gpu is not None
    assert gpu.status == "on", gpu.reason
    for kernel in gpu.kernels:
        row = found.setdefault(oracles.plain_name(kernel.name), [0, 0])
        row[0] += kernel.count
        row[1] += kernel.sum_ns
    return found


def overhead(step: Any) -> dict[str, list[float]]:
    """ms per step in turns; the second is with sections and the GPU layer."""
    found: dict[str, list[float]] = {"off": [], "sections + GPU": []}
    for _ in range(10):
        for name, times in found.items():
            prof = fastprof.Profiler(gpu=True, functions=False, enabled=name != "off")
            with prof:
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(100):
                    step()
                    prof.step()
                torch.cuda.synchronize()
                times.append((time.perf_counter() - begin) * 10)
    return found


def main(what: str) -> None:
    step = make()
    result: Any
    if what == "kineto":
        result = by_kineto(step, 10)
    elif what == "fastprof":
        result = by_fastprof(step, 10)
    elif what == "after":
        result = {"fastprof": by_fastprof(step, 5), "kineto": by_kineto(step, 5)}
    else:
        result = overhead(step)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
