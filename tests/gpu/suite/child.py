"""Programs with a known truth: `python child.py DEVICE QUESTION...`.

Each records something, and answers with fastprof's result and the expected one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import answering
import devices
import fastprof
from fastprof import profile_section


def recorded(
    work: Callable[[], None], device: Any, finish: bool = True, **options: Any
) -> dict[str, Any]:
    """Return the result of recording ``work``: the GPU's tables, sections by name, times in s."""
    device.finish()
    prof = fastprof.Profiler(gpu=True, skip_first=0, **options)
    times = [time.perf_counter()]
    prof.start()
    times.append(time.perf_counter())
    try:
        work()
        if finish:
            device.finish()
    finally:
        times.append(time.perf_counter())
        prof.stop()
    times.append(time.perf_counter())
    found = tables(prof.report())
    found["seconds"] = dict(zip(("start", "work", "stop"), map(float.__sub__, times[1:], times)))
    return found


def tables(report: Any) -> dict[str, Any]:
    """Return the GPU's tables of a report."""
    gpu = report.snapshot.gpu
    if gpu is None or gpu.status != "on":
        raise RuntimeError(f"the GPU was not recorded: {gpu and gpu.reason}")
    return {
        "gpu": gpu.to_dict(),
        "sections": {
            row.name: {"kernels": row.gpu.kernels, "ns": row.gpu.gpu_ns}
            for row in report.sections
            if row.gpu is not None
        },
    }


def timed(device: Any, name: str, count: int, ms: float) -> float:
    """Return the ms between events around ``count`` kernels that a section launches."""

    def launch() -> None:
        with profile_section(name):
            for _ in range(count):
                device.spin(ms)

    return float(device.elapsed_ms(launch))


def counts(device: Any) -> dict[str, Any]:
    def work() -> None:
        with profile_section("a"):
            device.launch(1000)
        with profile_section("b"):
            device.launch(500)

    return recorded(work, device) | {"truth": {"a": 1000, "b": 500}}


def spins(device: Any) -> dict[str, Any]:
    """One kernel of 5 ms, one of 20, and ten of 5 in a row, each between two events."""
    truth: dict[str, float] = {}

    def work() -> None:
        for name, count, ms in (("short", 1, 5), ("long", 1, 20), ("row", 10, 5)):
            truth[name] = timed(device, name, count, ms)

    device.warm_up()
    return recorded(work, device) | {"truth": truth}


def health(device: Any) -> dict[str, Any]:
    """Compare with the driver's figures in another process, while the device is busy."""
    truth: list[tuple[int, int]] = []

    def work() -> None:
        device.launch(1)
        device.finish()
        time.sleep(1.5)  # sampling of a device begins with its first record
        until = time.monotonic() + device.health_s
        while time.monotonic() < until:
            with profile_section("busy"):
                for _ in range(10):
                    device.spin(50)
            truth.append(device.ask_driver())
            device.finish()

    device.warm_up()
    return recorded(work, device) | {"truth": truth}


def copies(device: Any) -> dict[str, Any]:
    def work() -> None:
        with profile_section("copies"):
            for size in (1000, 4096, 1_000_003):
                device.copy("HtoD", size)
            device.copy("DtoH", 77_777)
            device.copy("DtoD", 123_456)

    truth = {"-1": [3, 1_005_099], "-2": [1, 77_777], "-3": [1, 123_456]}
    return recorded(work, device) | {"truth": truth}


def backward(device: Any) -> dict[str, Any]:
    """Count the kernels of forward and backward without sections."""

    def plain(backward_too: bool) -> int:
        def work() -> None:
            device.forward()
            if backward_too:
                device.backward()

        got = recorded(work, device)
        return int(got["gpu"]["counters"]["kernels"])

    forward, both = plain(False), plain(True)

    def work() -> None:
        with profile_section("forward"):
            device.forward()
        with profile_section("backward"):
            device.backward()

    return recorded(work, device) | {"truth": {"forward": forward, "backward": both - forward}}


def threads(device: Any) -> dict[str, Any]:
    def work() -> None:
        def one(i: int) -> None:
            with profile_section(f"thread {i}"):
                device.launch(50 * (i + 1))

        devices.in_threads(one, 4)

    return recorded(work, device) | {"truth": {f"thread {i}": 50 * (i + 1) for i in range(4)}}


def streams(device: Any) -> dict[str, Any]:
    def work() -> None:
        for i in range(4):
            with profile_section(f"stream {i}"):
                device.launch(25, stream=i)

    return recorded(work, device) | {"truth": {f"stream {i}": 25 for i in range(4)}}


def driver_only(device: Any) -> dict[str, Any]:
    """Kernels launched without a call of the runtime, like Triton's."""
    device.launch_by_driver(1)  # compiles it

    def work() -> None:
        with profile_section("driver only"):
            device.launch_by_driver(100)

    return recorded(work, device) | {"truth": {"driver only": 100}}


def delay(device: Any) -> dict[str, Any]:
    """Launch each kernel while the device is idle."""

    def work() -> None:
        with profile_section("one by one"):
            for _ in range(200):
                device.launch(1)
                device.finish()
                time.sleep(0.001)

    device.warm_up(0.2)
    return recorded(work, device) | {"truth": {"one by one": 200}}


# ---- graphs ----

NODES, REPLAYS = 8, 20


def graph(device: Any) -> dict[str, Any]:
    """Capture and replay in one recording."""
    replay: list[Callable[[], None]] = []

    def work() -> None:
        with profile_section("capture"):
            replay.append(device.capture(NODES))
        with profile_section("replay"):
            for _ in range(REPLAYS):
                replay[0]()

    return recorded(work, device) | {"truth": {"kernels": NODES * REPLAYS}}


def graph_before(device: Any) -> dict[str, Any]:
    """Capture before the recording."""
    replay = device.capture(NODES)

    def work() -> None:
        with profile_section("replay"):
            for _ in range(REPLAYS):
                replay()

    return recorded(work, device) | {"truth": {"kernels": NODES * REPLAYS}}


def graph_again(device: Any) -> dict[str, Any]:
    """The same in a second recording, which also replays the first one's graph."""
    replay: list[Callable[[], None]] = []

    def first() -> None:
        replay.append(device.capture(NODES))
        replay[0]()

    def work() -> None:
        with profile_section("old"):
            for _ in range(REPLAYS):
                replay[0]()
        with profile_section("capture"):
            replay.append(device.capture(NODES))
        with profile_section("replay"):
            for _ in range(REPLAYS):
                replay[1]()

    recorded(first, device)
    return recorded(work, device) | {"truth": {"kernels": 2 * NODES * REPLAYS}}


LONG_NODES = 500


def graph_long(device: Any) -> dict[str, Any]:
    """Replay large graphs for as long as CUPTI would need to lose much of the device's memory."""
    used: list[int] = []
    replays = 0

    def work() -> None:
        nonlocal replays
        replay = device.capture(LONG_NODES)
        used.append(device.memory_bytes())
        until = time.monotonic() + device.graphs_s
        with profile_section("replay"):
            while time.monotonic() < until:
                for _ in range(20):
                    replay()
                device.finish()
                time.sleep(0.01)  # the simulated device needs no time
                replays += 20
        used.append(device.memory_bytes())

    answer = recorded(work, device)
    truth = {"replays": replays, "nodes": LONG_NODES, "grown_bytes": used[1] - used[0]}
    return answer | {"truth": truth}


# ---- both ways of correlation ----


def everything(device: Any) -> dict[str, Any]:
    """For comparing the two ways of correlation: sections of one thread, and backward."""

    def work() -> None:
        for _ in range(20):
            with profile_section("data"):
                device.copy("HtoD", 4096)
            with profile_section("forward"):
                device.forward()
                with profile_section("inner"):
                    device.launch(3)
            with profile_section("backward"):
                device.backward()

    return recorded(work, device) | {"truth": {}}


def everything_held(device: Any) -> dict[str, Any]:
    """The same when another client has the subscriber slot."""
    device.hold_subscriber()
    return everything(device)


PROGRAMS = (
    *(counts, spins, copies, backward, threads, streams, driver_only, delay, health),
    *(graph, graph_before, graph_again, graph_long, everything, everything_held),
)

if __name__ == "__main__":
    answering.main(PROGRAMS, devices.open_device)
