"""A device with much work, and fastprof's cost: `python load.py DEVICE QUESTION...`."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import answering
import devices
from child import recorded, timed
from fastprof import profile_section


def million(device: Any) -> dict[str, Any]:
    """Launch many kernels as fast as possible."""

    def work() -> None:
        for _ in range(100):
            with profile_section("many"):
                device.launch(device.many // 100)

    return recorded(work, device, functions=False) | {"truth": {"many": device.many}}


def busy(device: Any) -> dict[str, Any]:
    """Kernels of 1 ms without a wait, the host as far ahead as possible; no wait at the end."""
    launched = 0

    def work() -> None:
        nonlocal launched
        until = time.monotonic() + device.busy_s
        while time.monotonic() < until:
            with profile_section("busy"):
                device.spin_in_line(1.0)
            launched += 1

    device.warm_up()
    found = recorded(work, device, finish=False, functions=False)
    return found | {"truth": {"busy": launched}}


def long_kernel(device: Any) -> dict[str, Any]:
    """One kernel that takes longer than several flush periods."""
    truth: dict[str, float] = {}

    def work() -> None:
        truth["long"] = timed(device, "long", 1, device.long_ms)

    device.warm_up()
    return recorded(work, device, functions=False) | {"truth": truth}


def costs(device: Any) -> dict[str, Any]:
    """Return seconds of each change of state, and their effect on the device's memory."""
    from fastprof._core import Recorder
    from fastprof.capture import gpu_find

    device.launch(100)
    device.finish()
    memory = {"before": device.free_memory()}
    seconds: dict[str, float] = {}
    recorder = Recorder()
    driver = gpu_find.driver_path()
    paths = gpu_find.cupti_paths(driver, initialise=True)

    def clocked(name: str, call: Any) -> Any:
        begin = time.perf_counter()
        result = call()
        seconds[name] = time.perf_counter() - begin
        return result

    answer = clocked("attach", lambda: recorder.gpu_start(paths, driver, initialise=True))
    if answer["state"] != "on":
        raise RuntimeError(f"the GPU is not recorded: {answer['reason']}")
    recorder.start_sections()
    memory["attached"] = device.free_memory()
    device.launch(100_000)
    device.finish()
    memory["after 100000 kernels"] = device.free_memory()
    clocked("pause", lambda: recorder.gpu_pause("a question"))
    clocked("resume", recorder.gpu_resume)
    device.launch(100)
    device.finish()
    recorder.stop_sections()
    clocked("stop", lambda: recorder.gpu_stop(2.0))
    memory["stopped"] = device.free_memory()
    gpu = recorder.export()["gpu"]
    return {"seconds": seconds, "memory": memory, "counters": dict(gpu["counters"])}


# ---- processes that end in every way ----

ENDINGS = {
    "exit without stop": ("raise SystemExit(0)", 0),
    "os._exit": ("os._exit(3)", 3),
    "killed": ("os.kill(os.getpid(), 9)", -9),
    "exception": ("raise ValueError('on purpose')", 1),
    "forked child": (
        "if os.fork() == 0: os._exit(0)\nassert os.wait()[1] == 0\nprof.stop()",
        0,
    ),
}
PROGRAM = """\
import os, sys
sys.path.insert(0, {folder!r})
import devices, fastprof
device = devices.open_device({device!r})
prof = fastprof.Profiler(gpu=True)
prof.start()
device.launch(100)
device.spin(20)
{end}
"""


def endings(device: str) -> dict[str, Any]:
    """Return how, and how fast, a program ends during a recording."""

    def run(end: str, status: int) -> dict[str, Any]:
        code = PROGRAM.format(folder=str(Path(__file__).parent), device=device, end=end)
        begin = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
            )
            ended: int | str = done.returncode
            said = done.stderr[-2000:]
        except subprocess.TimeoutExpired:
            ended, said = "hangs", ""
        took = round(time.monotonic() - begin, 3)
        return {"status": ended, "expected": status, "seconds": took, "stderr": said}

    with ThreadPoolExecutor() as pool:
        begun = {name: pool.submit(run, *how) for name, how in ENDINGS.items()}
        return {name: future.result() for name, future in begun.items()}


if __name__ == "__main__":
    if sys.argv[2:] == ["endings"]:
        answering.main([endings])
    else:
        answering.main([million, busy, long_kernel, costs], devices.open_device)
