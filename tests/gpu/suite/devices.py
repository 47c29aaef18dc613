"""What the checks do on a device, once with torch on CUDA and once with the simulated one.

Each method is the least that gives the device a known amount of work.  The methods that
launch wait for nothing; ``finish`` does.
"""

from __future__ import annotations

import ctypes
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any


class Torch:
    """CUDA through torch."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.manual_seed(0)
        self.x = torch.zeros(1024, device="cuda")
        self.model = torch.nn.Sequential(
            torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)
        ).cuda()
        self.input = torch.randn(64, 256, device="cuda")
        # Whatever is done once per process, before anything is counted.
        self.launch(2)
        self.forward()
        self.backward()
        self.copy("HtoD", 64)
        self.finish()

    def finish(self) -> None:
        self.torch.cuda.synchronize()

    def launch(self, count: int, stream: int = 0) -> None:
        """``count`` kernels, all the same."""
        with self._on(stream):
            for _ in range(count):
                self.x.fill_(1.0)

    def sleep(self, units: int) -> None:
        """One kernel that takes a time in proportion to ``units``."""
        self.torch.cuda._sleep(units * 2_000_000)

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
        """A graph of ``count`` kernels; called, it is replayed."""
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

    def hold_subscriber(self) -> None:
        """Take CUPTI's one subscriber slot, as another profiler would."""
        from fastprof.capture import gpu_find

        library = ctypes.CDLL(gpu_find.cupti_candidates()[0].path)
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
        self._callback = kind(lambda *_: None)
        self._slot = ctypes.c_void_p()
        result = library.cuptiSubscribe(ctypes.byref(self._slot), self._callback, None)
        if result != 0:
            raise RuntimeError(f"cuptiSubscribe: {result}")

    def elapsed_ms(self, work: Callable[[], None]) -> float:
        """Time between two CUDA events around ``work``."""
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        self.finish()
        return float(begin.elapsed_time(end))

    def ask_driver(self) -> tuple[int, int]:
        """Temperature in C and SM clock in MHz, as nvidia-smi says."""
        uuid = self.torch.cuda.get_device_properties(0).uuid
        query = ["--query-gpu=temperature.gpu,clocks.sm", "--format=csv,noheader,nounits"]
        command = ["nvidia-smi", "-i", f"GPU-{uuid}", *query]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        celsius, mhz = told.split(",")
        return int(celsius), int(mhz)

    def _on(self, stream: int) -> Any:
        import contextlib

        if stream == 0:
            return contextlib.nullcontext()
        return self.torch.cuda.stream(self.torch.cuda.Stream())


class Simulated:
    """The fake of tests/gpu; its kernels take as long as they are told."""

    SLEEP_NS = 50_000

    def __init__(self) -> None:
        import fakegpu

        self.gpu = fakegpu
        fakegpu.init()
        self.engine = fakegpu.Engine()

    def finish(self) -> None:
        self.gpu.synchronize()

    def launch(self, count: int, stream: int = 0) -> None:
        self.gpu.launch("fill", 1, stream=7 + stream, count=count)
        # Not faster than a real program: the point is that nothing is lost, not when.
        time.sleep(count * 10e-6 if count >= 10_000 else 0.0)

    def sleep(self, units: int) -> None:
        self.gpu.launch("spin", self.SLEEP_NS * units)

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

    def hold_subscriber(self) -> None:
        self.gpu.hold_subscriber("another profiler")

    def elapsed_ms(self, work: Callable[[], None]) -> float:
        """The device is idle before, so it is done when its time has passed."""
        self.finish()
        begin = self.gpu.now()
        work()
        self.finish()
        return float(self.gpu.now() - begin) / 1e6

    def ask_driver(self) -> tuple[int, int]:
        """What the fake NVML says unless told otherwise."""
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
