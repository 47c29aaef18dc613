"""The programs of the checks: `python child.py DEVICE PROGRAM`; prints one JSON object.

Each records something of which the truth is known, and prints both.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import devices
import fastprof
from fastprof import profile_section


def recorded(work: Callable[[], None], device: Any, **options: Any) -> dict[str, Any]:
    """What a recording of ``work`` has: the GPU's tables, and sections by name."""
    device.finish()
    with fastprof.Profiler(gpu=True, skip_first=0, **options) as prof:
        work()
        device.finish()
    report = prof.report()
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


def counts(device: Any) -> dict[str, Any]:
    def work() -> None:
        with profile_section("a"):
            device.launch(1000)
        with profile_section("b"):
            device.launch(500)

    return recorded(work, device) | {"truth": {"a": 1000, "b": 500}}


def sleeps(device: Any) -> dict[str, Any]:
    def work() -> None:
        with profile_section("short"):
            device.sleep(5)
        with profile_section("long"):
            device.sleep(20)

    device.sleep(20)  # the clock goes up
    return recorded(work, device) | {"truth": {"ratio": 4.0}}


def health(device: Any) -> dict[str, Any]:
    """What the driver tells in another process, while the device is busy."""
    truth: list[tuple[int, int]] = []

    def work() -> None:
        until = time.monotonic() + 10.0
        while time.monotonic() < until:
            with profile_section("busy"):
                for _ in range(10):
                    device.sleep(50)
            truth.append(device.ask_driver())
            device.finish()

    return recorded(work, device) | {"truth": truth}


def elapsed(device: Any) -> dict[str, Any]:
    """Time between two events around a section, and what the section's kernels add up to."""
    truth = []

    def work() -> None:
        def inner() -> None:
            with profile_section("timed"):
                for _ in range(10):
                    device.sleep(5)

        truth.append(device.elapsed_ms(inner))

    return recorded(work, device) | {"truth": {"ms": truth}}


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
    """Forward and backward without sections tell how many kernels each has."""

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


def graph(device: Any) -> dict[str, Any]:
    replay: list[Callable[[], None]] = []

    def work() -> None:
        with profile_section("capture"):
            replay.append(device.capture(8))
        with profile_section("replay"):
            for _ in range(20):
                replay[0]()

    return recorded(work, device) | {"truth": {"kernels": 8 * 20}}


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


def million(device: Any) -> dict[str, Any]:
    def work() -> None:
        for _ in range(100):
            with profile_section("many"):
                device.launch(10_000)

    return recorded(work, device, functions=False) | {"truth": {"many": 1_000_000}}


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
    *(counts, sleeps, elapsed, copies, backward, graph, threads, streams, million),
    *(everything, everything_held, health),
)

if __name__ == "__main__":
    program = {p.__name__: p for p in PROGRAMS}[sys.argv[2]]
    print(json.dumps(program(devices.open_device(sys.argv[1]))))
