"""The operations of the questions on a device: with torch on CUDA, and on the simulated one.

Each method gives the device a known amount of work with minimal code.  Launching methods do not
wait; ``finish`` does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class NotAsked(Exception):  # noqa: N818  (no error: an answer)
    """The question cannot be asked here; the text says why."""


class Torch:
    """CUDA through torch."""

    name = "torch"
    #: Amounts for long operations.
    many, busy_s, long_ms, health_s, graphs_s = 1_000_000, 10.0, 5000.0, 10.0, 8.0

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise NotAsked(f"torch cannot be imported: {error}") from error
        if not torch.cuda.is_available():
            raise NotAsked(f"torch {torch.__version__} sees no CUDA device")
        self.torch = torch
        torch.manual_seed(0)
        self.x = torch.zeros(1024, device="cuda")
        self.model = torch.nn.Sequential(
            torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)
        ).cuda()
        self.input = torch.randn(64, 256, device="cuda")
        self._cycles_per_ms = 0
        # Do the work that happens once per process before any counting.
        self.launch(2)
        self.forward()
        self.backward()
        self.copy("HtoD", 64)
        self.finish()

    def finish(self) -> None:
        self.torch.cuda.synchronize()

    def launch(self, count: int, stream: int = 0) -> None:
        """Launch ``count`` equal kernels."""
        with self._on(stream):
            for _ in range(count):
                self.x.fill_(1.0)

    def launch_by_driver(self, count: int) -> None:
        """Launch ``count`` kernels without the runtime."""
        try:
            from triton_kernel import add_one
        except ImportError as error:
            raise NotAsked(f"triton cannot be imported: {error}") from error
        for _ in range(count):
            add_one[(1,)](self.x, 1024, block=1024)

    def warm_up(self, seconds: float = 1.0) -> None:
        """Raise the clocks, and measure the length of a cycle."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.torch.cuda._sleep(2_000_000)
            self.finish()
        cycles = 20_000_000
        self._cycles_per_ms = int(cycles / self._events_ms(lambda: self.torch.cuda._sleep(cycles)))

    def spin(self, ms: float) -> None:
        """Launch one kernel of about ``ms`` milliseconds."""
        if not self._cycles_per_ms:
            self.warm_up()
        self.torch.cuda._sleep(int(ms * self._cycles_per_ms))

    def spin_in_line(self, ms: float) -> None:
        """Launch it behind the queued work; the driver limits the length of the queue."""
        self.spin(ms)

    def copy(self, direction: str, size_bytes: int) -> None:
        make = self.torch.ones if direction == "HtoD" else self.torch.empty
        host = make(size_bytes, dtype=self.torch.uint8, pin_memory=True)
        device = self.torch.empty(size_bytes, dtype=self.torch.uint8, device="cuda")
        if direction == "HtoD":
            device.copy_(host)
        elif direction == "DtoH":
            host.copy_(device)
        else:
            self.torch.empty_like(device).copy_(device)

    def forward(self) -> None:
        self.loss = self.model(self.input).square().sum()

    def backward(self) -> None:
        self.loss.backward()

    def capture(self, count: int) -> Callable[[], None]:
        """Capture a graph of ``count`` kernels; return a function that replays it."""
        graph = self.torch.cuda.CUDAGraph()
        y = self.torch.ones(1024, device="cuda")
        side = self.torch.cuda.Stream()
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):
            y.mul_(1.5)
        self.finish()
        with self.torch.cuda.graph(graph):
            for _ in range(count):
                y.mul_(1.5)
        self.finish()
        return graph.replay

    def memory_bytes(self) -> int:
        """Return the device's memory in use, by all of this process and CUPTI."""
        free, total = self.torch.cuda.mem_get_info()
        return int(total - free)

    def hold_subscriber(self) -> None:
        """Take CUPTI's only subscriber slot, like another profiler."""
        library = ctypes.CDLL(self.cupti_path())
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
        self._callback = kind(lambda *_: None)
        self._slot = ctypes.c_void_p()
        result = library.cuptiSubscribe(ctypes.byref(self._slot), self._callback, None)
        if result != 0:
            raise RuntimeError(f"cuptiSubscribe: {result}")

    def cupti_path(self) -> str:
        """Return the libcupti that torch has loaded, found without fastprof."""
        paths = {
            line.split(maxsplit=5)[5].strip()
            for line in Path("/proc/self/maps").read_text().splitlines()
            if "/libcupti.so" in line
        }
        if not paths:
            raise NotAsked("torch has loaded no libcupti")
        # Triton has a copy that torch does not use.
        return min(paths, key=lambda path: ("triton" in path, path))

    def elapsed_ms(self, work: Callable[[], None]) -> float:
        """Return the time between two CUDA events around ``work``."""
        return self._events_ms(work)

    def _events_ms(self, work: Callable[[], None]) -> float:
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda._sleep(4_000_000)  # some 2 ms for launching the work behind it
        begin.record()
        work()
        end.record()
        self.finish()
        return float(begin.elapsed_time(end))

    def free_memory(self) -> int | None:
        """Return the bytes of free device memory; None: unknown."""
        return int(self.torch.cuda.mem_get_info()[0])

    def ask_driver(self) -> tuple[int, int]:
        """Return the temperature in C and SM clock in MHz from nvidia-smi."""
        uuid = self.torch.cuda.get_device_properties(0).uuid
        query = ["--query-gpu=temperature.gpu,clocks.sm", "--format=csv,noheader,nounits"]
        command = ["nvidia-smi", "-i", f"GPU-{uuid}", *query]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        celsius, mhz = told.split(",")
        return int(celsius), int(mhz)

    def _on(self, stream: int) -> Any:
        if stream == 0:
            return contextlib.nullcontext()
        return self.torch.cuda.stream(self.torch.cuda.Stream())


class Simulated:
    """The fake of tests/gpu; the program chooses the length of its kernels."""

    name = "simulated"
    many, busy_s, long_ms, health_s, graphs_s = 200_000, 3.0, 3000.0, 4.0, 2.5

    def __init__(self) -> None:
        import fakegpu

        self.gpu = fakegpu
        fakegpu.init()
        self.engine = fakegpu.Engine()
        self._spun_ns = 0
        self._free_at = 0.0

    def finish(self) -> None:
        self.gpu.synchronize()

    def launch(self, count: int, stream: int = 0) -> None:
        self.gpu.launch("fill", 1, stream=7 + stream, count=count)
        # Not faster than a real program: the test is about losses, not about speed.
        time.sleep(count * 10e-6 if count >= 10_000 else 0.0)

    def launch_by_driver(self, count: int) -> None:
        self.gpu.launch("add_one", 1, count=count, driver_only=True)

    def warm_up(self, seconds: float = 1.0) -> None:
        pass

    def spin(self, ms: float) -> None:
        self._spun_ns += int(ms * 1e6)
        self.gpu.launch("spin", int(ms * 1e6))

    def spin_in_line(self, ms: float) -> None:
        """Like a driver, allow at most some 1000 waiting kernels."""
        now, line_s = time.monotonic(), 1000 * ms / 1e3
        self._free_at = max(self._free_at, now) + ms / 1e3
        time.sleep(max(0.0, self._free_at - now - line_s))
        self.spin(ms)

    def copy(self, direction: str, size_bytes: int) -> None:
        self.gpu.memcpy(direction, size_bytes)

    def forward(self) -> None:
        self.gpu.launch("gemm", 1000, count=2)
        self.gpu.launch("gelu", 500)

    def backward(self) -> None:
        self.engine.run_backward(["dgrad", "wgrad", "gelu_backward"], duration_ns=700)

    def capture(self, count: int) -> Callable[[], None]:
        self.gpu.capture_begin()
        self.gpu.launch("mul", 100, count=count)
        graph = self.gpu.instantiate(self.gpu.capture_end())
        return lambda: self.gpu.replay(graph)

    def memory_bytes(self) -> int:
        self.gpu.set("nodes_leak", 200)
        return int(self.gpu.counters()["device_bytes"])

    def hold_subscriber(self) -> None:
        self.gpu.hold_subscriber("another profiler")

    def cupti_path(self) -> str:
        return os.environ["FASTPROF_CUPTI"]

    def elapsed_ms(self, work: Callable[[], None]) -> float:
        """Return the time that ``work`` spins; its other kernels take almost no time."""
        before = self._spun_ns
        work()
        self.finish()
        return (self._spun_ns - before) / 1e6

    def free_memory(self) -> int | None:
        return None

    def ask_driver(self) -> tuple[int, int]:
        """Return the default figures of the fake NVML."""
        time.sleep(0.2)
        return 60, 1980


def open_device(name: str) -> Any:
    return Torch() if name == "torch" else Simulated()


def in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
