"""Questions that need torch on CUDA: other profilers, programs, overhead.

python others.py DEVICE QUESTION...
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import answering
import devices
import fastprof
import oracles
from child import recorded, tables, timed
from devices import NotAsked
from fastprof import profile_section

HERE = Path(__file__).resolve().parent


def _grandchild(*arguments: str, limit_s: float = 50.0, command: tuple[str, ...] = ()) -> Any:
    """Return the last line of JSON that this file prints for ``arguments``."""
    whole = [*(command or (sys.executable,)), str(HERE / "others.py"), *arguments]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=limit_s)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        said = (done.stdout[-1500:] + done.stderr[-3000:]).strip()
        raise RuntimeError(f"exit status {done.returncode}: {said}")
    return json.loads(lines[-1])


# ---- torch.profiler before, between, around and after recordings ----


def _profiler(torch: Any, cuda: bool) -> Any:
    activity = torch.profiler.ProfilerActivity
    return torch.profiler.profile(activities=[activity.CPU, *([activity.CUDA] if cuda else [])])


def _spun(device: Any) -> dict[str, Any]:
    """Record kernels between two events."""
    truth: dict[str, float] = {}

    def work() -> None:
        truth["spun"] = timed(device, "spun", 10, 5)

    begin = time.perf_counter_ns()
    found = recorded(work, device, functions=False)
    return found | {"truth": truth, "wall_ns": time.perf_counter_ns() - begin}


def _between(device: Any, before: bool, cuda: bool) -> dict[str, Any]:
    """Record before (if ``before``) and after a torch.profiler."""
    device.warm_up()
    stages = [_spun(device)] if before else []
    with _profiler(device.torch, cuda) as theirs:
        device.launch(100)
        device.finish()
    stages.append(_spun(device))
    events = theirs.profiler.kineto_results.events()
    return {"stages": stages, "their_events": len(events), "cuda": cuda}


def profiler_cpu_between(device: Any) -> dict[str, Any]:
    return _between(device, True, False)


def profiler_cuda_between(device: Any) -> dict[str, Any]:
    return _between(device, True, True)


def profiler_cpu_first(device: Any) -> dict[str, Any]:
    return _between(device, False, False)


def profiler_cuda_first(device: Any) -> dict[str, Any]:
    return _between(device, False, True)


def profiler_inside(device: Any) -> dict[str, Any]:
    """Run a torch.profiler of CPU and CUDA in the middle of a recording."""
    truth: dict[str, float] = {}

    theirs: list[Any] = []

    def work() -> None:
        truth["before"] = timed(device, "before", 10, 5)
        with _profiler(device.torch, True) as prof:
            device.launch(100)
            device.finish()
        theirs.extend(prof.profiler.kineto_results.events())
        truth["after"] = timed(device, "after", 10, 5)

    device.warm_up()
    begin = time.perf_counter_ns()
    found = recorded(work, device, functions=False)
    wall_ns = time.perf_counter_ns() - begin
    stage = found | {"truth": truth, "wall_ns": wall_ns}
    return {"stages": [stage], "their_events": len(theirs), "inside": True}


# ---- the same kernels as torch.profiler ----


def _steps(torch: Any) -> Callable[[], None]:
    """Return training steps whose warm-up is over."""
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


def by_kineto(torch: Any, step: Callable[[], None], steps: int) -> dict[str, list[float]]:
    """Return kernel name -> count, ns.

    Sections are user ranges, which have events on the device, too: these are not kernels.
    """
    with _profiler(torch, True) as prof:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = {}
    for event in prof.profiler.kineto_results.events():
        on_cuda = event.device_type() == torch.autograd.DeviceType.CUDA
        name = event.name()
        if on_cuda and not name.startswith(("Memcpy", "Memset")) and not _is_range(event):
            row = found.setdefault(oracles.plain_name(name), [0, 0])
            row[0] += 1
            row[1] += event.duration_ns()
    return found


def _is_range(event: Any) -> bool:
    if hasattr(event, "is_user_annotation"):
        return bool(event.is_user_annotation())
    return event.name() in ("forward", "backward", "optimizer")


def by_fastprof(torch: Any, step: Callable[[], None], steps: int) -> dict[str, list[float]]:
    with fastprof.Profiler(gpu=True, skip_first=0) as prof:
        for _ in range(steps):
            step()
            prof.step()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = {}
    for row in tables(prof.report())["gpu"]["kernels"]:
        sums = found.setdefault(oracles.plain_name(row[0]), [0, 0])
        sums[0] += row[12]
        sums[1] += row[13]
    return found


def same_kernels(device_name: str) -> dict[str, Any]:
    """Return the counts of each profiler in a separate process."""
    return {who: _grandchild("--count", who) for who in ("kineto", "fastprof")}


def same_kernels_after(device_name: str) -> dict[str, Any]:
    """Return the counts of each profiler in one process, fastprof first."""
    return _grandchild("--count", "after")


def _count(who: str) -> Any:
    torch = devices.Torch().torch
    step = _steps(torch)
    if who == "after":
        ours = by_fastprof(torch, step, 5)
        return {"fastprof": ours, "kineto": by_kineto(torch, step, 5)}
    return (by_kineto if who == "kineto" else by_fastprof)(torch, step, 5)


# ---- programs ----

LOOP = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)))
for x, y in DataLoader(data, batch_size=32):
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
"""


def default_run(device_name: str) -> dict[str, Any]:
    """``fastprof run`` of a loop: in it torch.profiler takes the subscriber slot and keeps it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "loop.py").write_text(LOOP)
        command = [sys.executable, "-m", "fastprof", "run", "-o", "out", "loop.py"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=80, cwd=folder)
        if done.returncode != 0:
            raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-3000:]}")
        found = tables(fastprof.load(Path(folder) / "out" / "train_profile.fprof"))
    gpu = found["gpu"]
    return {
        "tier": gpu["tier"],
        "reason": gpu["reason"],
        "how": dict(oracles.by_how(gpu)),
        "kernels": {name: row["kernels"] for name, row in found["sections"].items()},
        "syncs": gpu["counters"]["syncs"],
        "printed": done.stdout,
    }


GPT = """\
import json, sys, time
import torch
from torch import nn
steps, width, layers = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
layer = nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0.0, batch_first=True)
model = nn.Sequential(
    nn.Embedding(1000, width),
    nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
    nn.Linear(width, 1000),
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
ends = []
for step in range(steps):
    x = torch.randint(0, 1000, (4, 64), device="cuda")
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
    ends.append(time.perf_counter())
walls = sorted(b - a for a, b in zip(ends[2 * steps // 3:], ends[2 * steps // 3 + 1:]))
print("MS", json.dumps(walls[len(walls) // 2] * 1e3))
"""
#: How a program is run, by the name of what it costs.
WAYS: dict[str, list[str]] = {
    "alone": [],
    "without windows": [
        "-m", "fastprof", "run", "-o", "out",
        "--operator", "enable_cpu_profiling=false", "--operator", "enable_cuda_profiling=false",
    ],
    "default": ["-m", "fastprof", "run", "-o", "out"],
}  # fmt: skip


def default_cost(device_name: str, sizes: Sequence[str] = ("360", "384", "6")) -> dict[str, Any]:
    """ms of the last third of a small GPT's steps, after the full look and its windows, in turns.

    ``sizes``: steps, width, layers.
    """
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "gpt.py").write_text(GPT)
        for names in (list(WAYS), list(WAYS)[::-1]):
            for name in names:
                command = [sys.executable, *WAYS[name], "gpt.py", *sizes]
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=60, cwd=folder
                )
                said = [line for line in done.stdout.splitlines() if line.startswith("MS ")]
                if done.returncode != 0 or not said:
                    raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-3000:]}")
                found[name].append(json.loads(said[0][3:]))
    return {"ms": found}


SEED = """\
import json, torch
torch.manual_seed(1234)
called = []
{more}
numbers = torch.rand(8, device="cuda").tolist()
print(json.dumps({{"numbers": numbers, "seed": torch.cuda.initial_seed(), "called": called}}))
"""
#: Another call in torch's queue for the initialisation of CUDA.
QUEUED = "torch.cuda._lazy_call(lambda: called.append(1))"


def seed(device_name: str) -> dict[str, Any]:
    """Random numbers of a program that seeds before it uses CUDA."""
    start = "fastprof.Profiler().start()\n"
    programs = {
        "without": SEED.format(more=""),
        "gpu auto": f"import fastprof; p = {start}" + SEED.format(more=""),
        "torch first": f"import torch, fastprof; p = {start}" + SEED.format(more=""),
        "another call": f"import torch, fastprof; p = {start}" + SEED.format(more=QUEUED),
    }
    commands = {name: [sys.executable, "-c", text] for name, text in programs.items()}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        (Path(folder) / "program.py").write_text(SEED.format(more=""))
        commands["fastprof run"] = [sys.executable, "-m", "fastprof", "run", "program.py"]
        begun = {n: pool.submit(_numbers, c, folder) for n, c in commands.items()}
        return {name: future.result() for name, future in begun.items()}


def _numbers(command: list[str], folder: str) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, timeout=70, cwd=folder)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"numbers"')]
    if not lines:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-3000:]}")
    return json.loads(lines[0])


def compiled(device: Any) -> dict[str, Any]:
    """torch.compile with CUDA graphs, captured before the recording and replayed in it."""
    torch = device.torch
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)
    ).cuda()
    try:
        fast = torch.compile(model, mode="reduce-overhead")
        with torch.no_grad():
            for _ in range(4):
                fast(device.input)
        device.finish()
    except ImportError as error:
        raise NotAsked(f"torch.compile cannot be used: {error}") from error

    def work() -> None:
        with torch.no_grad():
            for _ in range(20):
                with profile_section("compiled"):
                    torch.compiler.cudagraph_mark_step_begin()
                    fast(device.input)

    return recorded(work, device) | {"truth": {"replays": 20}}


def loader(device: Any) -> dict[str, Any]:
    """A DataLoader whose workers are forked while the GPU is recorded, with pinned memory."""
    torch = device.torch
    data = torch.utils.data.TensorDataset(torch.arange(512, dtype=torch.float32))
    loaded = torch.utils.data.DataLoader(
        data, batch_size=16, num_workers=2, pin_memory=True, multiprocessing_context="fork"
    )
    total = torch.zeros((), device="cuda")

    def work() -> None:
        for (batch,) in loaded:
            with profile_section("sum"):
                total.add_(batch.to("cuda", non_blocking=True).sum())

    found = recorded(work, device)
    return found | {"truth": {"batches": 32, "sum": 512 * 511 / 2}, "sum": float(total)}


def under_ncu(device_name: str) -> dict[str, Any]:
    """A program in which Nsight Compute has the records."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise NotAsked("there is no ncu")
    command = (ncu, "--target-processes", "all", "--launch-count", "1")
    try:
        return _grandchild("--tool", command=(*command, sys.executable), limit_s=80)
    except RuntimeError as error:
        if "Failed to initialize the profiler" in str(error):
            raise NotAsked("ncu cannot profile here: Failed to initialize the profiler") from error
        raise


def _tool() -> Any:
    device = devices.Torch()
    with fastprof.Profiler(gpu=True, skip_first=0) as prof:
        with profile_section("work"):
            device.launch(5)
            device.finish()
    report = prof.report()
    gpu = report.snapshot.gpu
    calls = {row.name: row.count for row in report.sections}
    return {"status": gpu and gpu.status, "reason": gpu and gpu.reason, "calls": calls}


# ---- costs ----


def _rounds(
    device: Any, step: Callable[[], None], steps: int, rounds: int, **options: Any
) -> dict[str, Any]:
    """Return ms per step in turns, off and on; the order changes each time."""
    found: dict[str, list[float]] = {"off": [], "on": []}
    for number in range(rounds):
        for name in ("off", "on") if number % 2 else ("on", "off"):
            prof = fastprof.Profiler(gpu=True, enabled=name == "on", **options)
            with prof:
                step()
                device.finish()
                begin = time.perf_counter()
                for _ in range(steps):
                    step()
                    prof.step()
                device.finish()
                found[name].append((time.perf_counter() - begin) * 1e3 / steps)
    return found


def overhead_transformer(device: Any) -> dict[str, Any]:
    """Steps of a transformer, with sections and the GPU, without functions."""
    torch = device.torch
    layer = torch.nn.TransformerEncoderLayer(
        1024, 16, 4096, dropout=0.0, batch_first=True, dtype=torch.bfloat16
    )
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(16, 512, 1024, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        with profile_section("forward"):
            loss = model(batch).float().square().mean()
        with profile_section("backward"):
            loss.backward()
        with profile_section("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    for _ in range(10):
        step()
    device.finish()
    return _rounds(device, step, 20, 12, functions=False)


def overhead_launches(device: Any) -> dict[str, Any]:
    """Steps that only launch; the device is faster."""

    def step() -> None:
        with profile_section("launches"):
            device.launch(1000)

    for _ in range(10):
        step()
    device.finish()
    found = _rounds(device, step, 20, 12, functions=False)
    return found | {"with functions": _rounds(device, step, 20, 6)}


OPENED = (
    *(profiler_cpu_between, profiler_cuda_between, profiler_cpu_first, profiler_cuda_first),
    *(profiler_inside, compiled, loader, overhead_transformer, overhead_launches),
)
UNOPENED = (default_run, default_cost, same_kernels, same_kernels_after, seed, under_ncu)

if __name__ == "__main__":
    if sys.argv[1] == "--count":
        print(json.dumps(_count(sys.argv[2])))
    elif sys.argv[1] == "--tool":
        print(json.dumps(_tool()))
    elif sys.argv[2] in {program.__name__ for program in UNOPENED}:
        answering.main(UNOPENED)
    else:
        answering.main(OPENED, devices.open_device)
